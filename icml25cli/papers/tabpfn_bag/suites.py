"""Known sets, and the two lists of real ones that the method is developed and judged on.

DEVELOPMENT is what anything may be tuned on. HELD_OUT is run once, with what development settled; neither list changes.

Knows scikit-learn's sets and the assets. Does not know methods.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from icml25cli.core import store
from icml25cli.core.errors import InputError, MissingError

DEVELOPMENT = (
    "builtin:digits",  # 1797 rows, 64 columns, 10 classes
    "keel:vehicle",  # 846, 18, 4
    "keel:german",  # 1000, 20 some of them codes, 2
    "keel:phoneme",  # 5404, 5, 2
    "keel:mammographic",  # 830, 5, 2
    "keel:spambase",  # 4597, 57, 2
    "keel:texture",  # 5500, 40, 11
    "keel:movement_libras",  # 360, 90, 15
    "weka:glass",  # 214, 9, 6
    "weka:breast-cancer",  # 286, 9 categories some missing, 2
)
HELD_OUT = (
    "keel:letter",  # 20000, 16, 26
    "weka:soybean",  # 683, 35 categories many missing, 19
    "keel:vowel",  # 990, 13, 11
    "mlbench:DNA",  # 3186, 180 categories, 3
    "keel:satimage",  # 6435, 36, 6
    "keel:ionosphere",  # 351, 33, 2
    "weka:vote",  # 435, 16 categories many missing, 2
    "keel:segment",  # 2310, 19, 7
    "keel:magic",  # 19020, 10, 2
    "mlbench:Shuttle",  # 58000, 9, 7
    "keel:crx",  # 653, 15 some of them categories, 2
    "mlbench:PimaIndiansDiabetes2",  # 768, 8 many missing, 2
)
BUILTIN = ("iris", "wine", "breast_cancer", "digits")
SUITES: dict[str, tuple[str, ...]] = {
    "builtin": tuple(f"builtin:{name}" for name in BUILTIN),
    "development": DEVELOPMENT,
    "held-out": HELD_OUT,
}
ASSETS = {"keel": (".dat", "balanced/raw"), "weka": (".arff", "."), "mlbench": (".rda", ".")}
# mlbench's targets stand last but for these.
FIRST = ("LetterRecognition", "Soybean", "HouseVotes84")


def known_sets() -> list[str]:
    """Names that ``read_known`` takes: those of scikit-learn, and those of assets that are fetched."""
    names = list(SUITES["builtin"])
    for asset, (suffix, folder) in ASSETS.items():
        if store.is_fetched(asset):
            names += sorted(f"{asset}:{file.stem}" for file in (store.path(asset) / folder).glob(f"*{suffix}"))
    return names


def is_known(name: str) -> bool:
    """Whether a name begins as one of a known set does."""
    return name.partition(":")[0] in ("builtin", *ASSETS)


def read_known(name: str, read_file: Callable[[str], pd.DataFrame]) -> pd.DataFrame:
    """A known set, its class in the column ``target``.

    Args:
        read_file: reads an ordinary file of an asset.

    Raises:
        InputError: no set has that name.
        MissingError: its asset is not fetched, or R's format cannot be read for want of a package.
    """
    kind, _, rest = name.partition(":")
    if kind == "builtin" and rest in BUILTIN:
        return _builtin(rest)
    if kind not in ASSETS:
        raise InputError(f"no known set is called '{name}'", hint=f"one of {', '.join(SUITES['builtin'])}")
    suffix, folder = ASSETS[kind]
    file = store.path(kind) / folder / f"{rest}{suffix}"
    if "/" in rest or not file.is_file():
        raise InputError(f"no known set is called '{name}'", hint=f"see the files of icml25 assets path {kind}")
    if suffix == ".rda":
        return _from_r(str(file), rest)
    frame = read_file(str(file))
    return frame.rename(columns={frame.columns[-1]: "target"})


def _builtin(name: str) -> pd.DataFrame:
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    frame = pd.DataFrame(found.data, columns=[str(column) for column in found.feature_names])
    names = np.asarray(found.target_names)
    return frame.assign(target=names[found.target])


def _from_r(file: str, name: str) -> pd.DataFrame:
    import warnings

    try:
        import rdata
    except ImportError as error:
        raise MissingError("sets of mlbench need the package rdata", hint="pip install 'icml25[tables]'") from error
    with warnings.catch_warnings(action="ignore"):  # files that do not name their encoding are ASCII
        frame = rdata.read_rda(file)[name]
    frame = frame.drop(columns="Id", errors="ignore").reset_index(drop=True)
    return frame.rename(columns={frame.columns[0 if name in FIRST else -1]: "target"})
