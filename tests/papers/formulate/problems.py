"""Problems in words, in styles unlike those that the grammar was made with, each with its optimum."""

PROBLEMS: dict[str, tuple[str, float]] = {
    "transport table in prose": (
        "Our two plants must serve three markets. Plant A holds 350 cases, plant B holds 600. The markets need "
        "325, 300 and 275 cases. Shipping a case costs $2.50, $1.70 and $1.80 from plant A to the markets in "
        "that order, and $2.50, $1.80 and $1.40 from plant B. Find the cheapest shipping plan.",
        1675.0,  # 50 from A and 275 from B to the first, 300 from A to the second, 275 from B to the third
    ),
    "blending": (
        "A refinery blends light and heavy crude into petrol. The blend must have an octane number of at least 88 on "
        "average; light crude has octane 93 and costs $70 a barrel, heavy crude has octane 82 and costs $50 a barrel. "
        "1,000 barrels of petrol are wanted. What is the cheapest blend?",
        60909.0909,
    ),
    "staffing": (
        "Nurses work five consecutive days and then rest two. The ward needs 17 nurses on Monday, 13 on Tuesday, 15 on "
        "Wednesday, 19 on Thursday, 14 on Friday, 16 on Saturday and 11 on Sunday. Minimize the number of nurses.",
        23.0,
    ),
    "cutting stock": (
        "Paper rolls of 100 inches are cut into widths of 45, 36, 31 and 14 inches; 97, 610, 395 and 211 of them are "
        "ordered. How should the rolls be cut to use as few as possible?",
        453.0,
    ),
    "knapsack": (
        "I can carry 15 kg in my backpack. The tent weighs 7 kg and is worth 9 to me, the stove weighs 4 kg and"
        " is worth 5, the camera weighs 3 kg and is worth 6, the books weigh 6 kg and are worth 4. Which items "
        "do I take to maximize what they are worth?",
        20.0,
    ),
    "e-mail with noise": (
        "Hi Tom,\n\nsorry for the late reply, I was at the dentist. About the workshop: every chair we make "
        "takes 2 hours of carpentry and every table takes 5 hours of carpentry. We have at most 200 hours of "
        "carpentry next month. The chairs bring a profit of $30 each and the tables bring a profit of $90 each."
        " At least 20 chairs must be made. How many chairs and tables should we make to maximize the profit? "
        "Say hello to Mary!\n\nBest, Ann",
        3480.0,  # 20 chairs and 32 tables
    ),
    "diet in telegram style": (
        "Diet of oats and milk. Oats: 4 units of protein, 2 units of iron, cost $3. Milk: 2 units of protein, 3"
        " units of iron, cost $2. Needed: at least 40 units of protein and at least 36 units of iron. Minimize "
        "the cost.",
        34.0,  # 6 oats and 8 milk
    ),
    "bus hire with words for numbers": (
        "A school hires buses and vans for a trip. A bus seats fifty pupils and costs $400, a van seats ten pupils and "
        "costs $100. At least two hundred pupils travel. At most three buses can be hired. How many buses and vans "
        "should be hired to minimize the cost?",
        1700.0,  # 3 buses and 5 vans
    ),
    "garden with a share": (
        "A gardener plants roses and tulips. A rose needs 3 litres of water and a tulip needs 1 litre of water; there "
        "are 120 litres of water available. At least 40% of the plants must be roses. Each rose sells for $5 and each "
        "tulip sells for $2. Maximize the revenue.",
        213.0,
    ),
    "fixed charge": (
        "Opening the east depot has a fixed cost of $900 and the west depot a fixed cost of $700. East serves 50 "
        "customers at $4 each, west 40 at $6 each. 60 customers must be served. Minimize the total cost.",
        1860.0,
    ),
}
