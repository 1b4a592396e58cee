"""Methods of other libraries, on the same rows. Knows data frames and scikit-learn's estimators."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64
from numpy import ndarray

from icml25cli.core.errors import MissingError, UsageError
from icml25cli.papers.tabpfn_bag.columns import Schema

BASELINES = ("hgb", "rf", "logreg", "knn", "xgb", "lgbm", "catboost")
PACKAGES = {"xgb": "xgboost", "lgbm": "lightgbm", "catboost": "catboost"}


def baseline_probabilities(
    name: str,
    frame: pd.DataFrame,
    labels: Int64[ndarray, "n"],
    seed: int,
    threads: int = 1,
) -> Callable[[pd.DataFrame], Float64[ndarray, "m classes"]]:
    """Fit a library's classifier at its defaults; what it returns gives probabilities of rows.

    All see what the network's encoders see: standardised numbers, one-hot categories, marks of missing numbers.

    Raises:
        UsageError: no baseline has that name.
        MissingError: its package is not installed.
    """
    schema = Schema.of(frame)
    estimator = _estimator(name, labels, seed, threads)
    estimator.fit(_matrix(schema, frame), labels)
    seen = np.asarray(estimator.classes_)

    def probabilities(other: pd.DataFrame) -> ndarray:
        p = np.zeros((len(other), int(labels.max()) + 1))
        p[:, seen] = estimator.predict_proba(_matrix(schema, other))
        return p

    return probabilities


def _matrix(schema: Schema, frame: pd.DataFrame) -> ndarray:
    rows = schema.rows(frame)
    parts = [rows.numbers.numpy()]
    codes = rows.codes.numpy()
    parts += [(codes[:, [i]] == np.arange(width)).astype(np.float32) for i, width in enumerate(schema.levels)]
    return np.concatenate(parts, 1)


def _estimator(name: str, labels: Int64[ndarray, "n"], seed: int, threads: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    if name in PACKAGES:
        try:
            package = importlib.import_module(PACKAGES[name])
        except ImportError as error:
            raise MissingError(
                f"the baseline '{name}' needs the package {PACKAGES[name]}", hint=f"pip install {PACKAGES[name]}"
            ) from error
        if name == "xgb":
            return package.XGBClassifier(random_state=seed, n_jobs=threads)
        if name == "lgbm":
            return package.LGBMClassifier(random_state=seed, n_jobs=threads, verbose=-1)
        return package.CatBoostClassifier(random_seed=seed, thread_count=threads, verbose=0, allow_writing_files=False)
    known = {
        # Of its own accord it holds rows of every class out of many, which a class of one row does not allow.
        "hgb": lambda: HistGradientBoostingClassifier(
            random_state=seed,
            early_stopping="auto" if np.unique(labels, return_counts=True)[1].min() > 1 else False,  # type: ignore[arg-type]
        ),
        "rf": lambda: RandomForestClassifier(300, random_state=seed, n_jobs=threads),
        "logreg": lambda: LogisticRegression(max_iter=2000),
        "knn": lambda: KNeighborsClassifier(min(5, len(labels))),
    }
    if name not in known:
        raise UsageError(f"no baseline is called '{name}'", hint=f"one of {', '.join(BASELINES)}")
    return known[name]()
