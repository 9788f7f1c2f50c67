"""Scores of predictions: scikit-learn's and SciPy's, with fixed rules where those do not define one."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Of class numbers, and of values. All are larger where predictions are better.
CLASS_METRICS = ("accuracy", "f1", "macro_f1", "mcc")
VALUE_METRICS = ("pearson", "spearman")
METRICS = CLASS_METRICS + VALUE_METRICS
#: What people call them.
METRIC_NAMES = {
    "accuracy": "accuracy",
    "f1": "F1",
    "macro_f1": "macro F1",
    "mcc": "MCC",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "las": "LAS",
    "uas": "UAS",
    "exact_match": "exact match",
}


def score(metric: str, truth: NDArray[Any], predicted: NDArray[Any]) -> float:
    """One of ``METRICS``; NaN where it is undefined.

    Parameters
    ----------
    metric : str
        ``accuracy``; ``f1`` of class 1; ``macro_f1``, its mean over the classes of ``truth``; ``mcc``, Matthews'
        correlation; ``pearson`` and ``spearman`` of values.
    truth, predicted : array (n,)
        Class numbers, or values.

    Notes
    -----
    F1 is 0 where nothing is predicted to be of a class that is there, and undefined where it is on neither side. MCC is
    0 where one side is constant, undefined where both are. Correlations with a constant are undefined.
    """
    if len(truth) == 0:
        return float("nan")
    return {
        "accuracy": _accuracy,
        "f1": _f1,
        "macro_f1": _macro_f1,
        "mcc": _mcc,
        "pearson": _pearson,
        "spearman": _spearman,
    }[metric](truth, predicted)


def _accuracy(truth: NDArray[Any], predicted: NDArray[Any]) -> float:
    return float((truth == predicted).mean())


def _f1(truth: NDArray[Any], predicted: NDArray[Any]) -> float:
    from sklearn.metrics import f1_score  # noqa: PLC0415 (slow to import)

    return float(f1_score(truth == 1, predicted == 1, zero_division=np.nan))


def _macro_f1(truth: NDArray[Any], predicted: NDArray[Any]) -> float:
    from sklearn.metrics import f1_score  # noqa: PLC0415

    return float(f1_score(truth, predicted, labels=np.unique(truth), average="macro", zero_division=0.0))


def _mcc(truth: NDArray[Any], predicted: NDArray[Any]) -> float:
    from sklearn.metrics import matthews_corrcoef  # noqa: PLC0415

    if _constant(truth) and _constant(predicted):
        return float("nan")
    return float(matthews_corrcoef(truth, predicted))


def _pearson(truth: NDArray[Any], predicted: NDArray[Any]) -> float:
    if _constant(truth) or _constant(predicted):
        return float("nan")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return float(np.corrcoef(truth, predicted)[0, 1])


def _spearman(truth: NDArray[Any], predicted: NDArray[Any]) -> float:
    from scipy.stats import rankdata  # noqa: PLC0415

    return _pearson(rankdata(truth), rankdata(predicted))


def _constant(values: NDArray[Any]) -> bool:
    return bool((values == values[0]).all())
