"""A few problems in words with their optima, for checks that need no data."""

SAMPLES: tuple[tuple[str, float], ...] = (
    (
        "A farmer has 10 acres of land and a budget of $100. An acre of wheat costs $2 to plant and brings a profit "
        "of $20. An acre of corn costs $5 to plant and brings a profit of $30. How many acres of each should be "
        "planted to maximize the profit?",
        300.0,
    ),
    (
        "A school hires buses and vans for a trip. A bus seats fifty pupils and costs $400, a van seats ten pupils and "
        "costs $100. At least two hundred pupils travel. At most three buses can be hired. How many buses and vans "
        "should be hired to minimize the cost?",
        1700.0,
    ),
    (
        "A baker has 30 kg of flour and 12 hours. A cake takes 2 kg of flour and 1 hour, a loaf takes 1 kg of flour "
        "and 0.25 hours. Each cake earns $9 and each loaf earns $3. How many cakes and loaves maximize the profit?",
        117.0,
    ),
    (
        "A gardener plants roses and tulips. A rose needs 3 litres of water and a tulip needs 1 litre of water; there "
        "are 120 litres of water available. At least 40% of the plants must be roses. Each rose sells for $5 and each "
        "tulip sells for $2. Maximize the revenue.",
        213.0,
    ),
    (
        "A joiner makes stools and benches. A stool takes 2 hours of work and a bench takes 5 hours of work. There are "
        "at most 200 hours of work. At least 20 stools must be made. A stool brings a profit of $30 and a bench brings "
        "a profit of $90. Maximize the profit.",
        3480.0,
    ),
    (
        "A clinic gives tests by nurses and by doctors. A nurse does 6 tests an hour and is paid $30, a doctor does 9 "
        "tests an hour and is paid $70. At least 90 tests must be done. The number of nurses cannot exceed twice the "
        "number of doctors. Minimize the total pay.",
        590.0,
    ),
)
