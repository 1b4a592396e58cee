"""`BetaClassifier`: the command's methods as a scikit-learn estimator.

    BetaClassifier().fit(frame, target).predict_proba(other)

Frames keep what their columns are: text and categories are one-hot, dates become parts, missing values need no work.
Arrays are taken column by column the same way.

Knows scikit-learn's conventions and models. Does not know files.
"""

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float64
from numpy import ndarray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from icml25cli.core.errors import ToolboxError
from icml25cli.papers.tabpfn_bag.finetune import Recipe
from icml25cli.papers.tabpfn_bag.model import Options, fit_model
from icml25cli.papers.tabpfn_bag.nets import load_net


class BetaClassifier(ClassifierMixin, BaseEstimator):
    """Beta, and the methods it is compared with, by the same names as on the command line.

    Attributes:
        classes_: of the target, in the order of the probabilities' columns.
        model_: the fitted model, which ``saved.save_model`` writes.
        facts_: how it came about: losses, steps, what predicts.
    """

    def __init__(
        self,
        method: str = "beta",
        *,
        k: int = 8,
        arch: str = "tabm-mini",
        context_size: int = 1000,
        batch: int = 256,
        epochs: int = 200,
        patience: int = 10,
        lr: float = 2e-3,
        wd: float = 0.02,
        dropout: float = 0.15,
        valid: float = 0.2,
        aggregate: str = "logit",
        many_class: str = "alphabet",
        fallback: bool = True,
        time_limit: float | None = 300.0,
        pfn: str = "nano",
        random_state: Any = 0,
    ) -> None:
        self.method = method
        self.k = k
        self.arch = arch
        self.context_size = context_size
        self.batch = batch
        self.epochs = epochs
        self.patience = patience
        self.lr = lr
        self.wd = wd
        self.dropout = dropout
        self.valid = valid
        self.aggregate = aggregate
        self.many_class = many_class
        self.fallback = fallback
        self.time_limit = time_limit
        self.pfn = pfn
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def fit(self, X: Any, y: Any) -> "BetaClassifier":
        """Fit rows and their classes, a share of which decides when training stops.

        Raises:
            ValueError: as for every estimator; also where no column can be used or there is one class only.
        """
        frame = self._frame(X, y=y, reset=True)
        y = column_or_1d(y, warn=True)
        if pd.isna(y).any():
            raise ValueError("Input y contains NaN.")
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"BetaClassifier needs rows of two classes or more; there is one class, {self.classes_[0]!r}"
            )
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31)
        recipe = Recipe(
            shown=self.context_size,
            batch=self.batch,
            epochs=self.epochs,
            patience=self.patience,
            rate=self.lr,
            decay=self.wd,
            aggregate=self.aggregate,  # type: ignore[arg-type]
            time_limit=self.time_limit,
            seed=int(seed),
        )
        try:
            options = Options(
                method=self.method,
                paths=self.k,
                kind=self.arch,
                dropout=self.dropout,
                valid=self.valid,
                many_class=self.many_class,  # type: ignore[arg-type]
                fallback=self.fallback,
                recipe=recipe,
            )
            self.model_ = fit_model(frame, pd.Series(numbers), load_net(self.pfn), options)
        except ToolboxError as error:
            raise ValueError(error.message) from error
        self.facts_ = self.model_.facts
        return self

    def predict_proba(self, X: Any) -> Float64[ndarray, "n classes"]:
        """Probabilities of the classes, in the order of ``classes_``."""
        check_is_fitted(self)
        return self.model_.probabilities(self._frame(X, reset=False))

    def predict(self, X: Any) -> ndarray:
        """The likeliest class of each row."""
        p = self.predict_proba(X)
        return self.classes_[p.argmax(1)]

    def _frame(self, X: Any, *, reset: bool, y: Any = "no_validation") -> pd.DataFrame:
        """A frame as it is, anything else as an array with a column for each feature."""
        if isinstance(X, pd.DataFrame):
            validate_data(self, X, y, reset=reset, skip_check_array=True)  # type: ignore[reportArgumentType]
            if not len(X):
                raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required by BetaClassifier.")
            return X.reset_index(drop=True)
        array: Any = validate_data(self, X, y, reset=reset, dtype=None, ensure_all_finite="allow-nan")
        array = array[0] if isinstance(array, tuple) else array
        return pd.DataFrame(array, columns=[f"x{i}" for i in range(array.shape[1])])
