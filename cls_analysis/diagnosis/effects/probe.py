"""``probe``: whether normalising helps a linear classifier on the vectors, and if so its optimum or the way there.

Each normalisation is one arm, ``none`` the reference. On the same folds each arm gives the accuracy of a linear layer
at its optimum, after a number of steps of SGD, and after as many of AdamW. Whatever is fitted or chosen, the
normalisation included, sees training rows only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats
from numpy.typing import NDArray
from sklearn.model_selection import RepeatedStratifiedKFold, StratifiedKFold

from cls_analysis.diagnosis.effects.folds import Classes, Fold, Record, Rows
from cls_analysis.diagnosis.effects.optimum import Fitter, at_optimum
from cls_analysis.diagnosis.effects.steps import TRAINERS, after_steps, draw_batches
from cls_analysis.errors import DataError, OptionError, unknown_name
from cls_analysis.matrices import profile_vectors
from cls_analysis.moments import Array, as_matrix, check_finite, single_threaded_blas
from cls_analysis.statistics.normalizers import NORMALIZERS

OPTIMIZERS = ("optimum", "sgd", "adamw")
#: All normalisations.
DEFAULT = tuple(NORMALIZERS)
REFERENCE = "none"
#: A shift goes into the intercept and a common factor into the penalty: these arms have the optimum of the reference.
SAME_OPTIMUM = {"scale": REFERENCE, "center": REFERENCE}
#: Folds within the training rows, by which penalties and rates are chosen.
INNER_FOLDS = 3
#: Differences of accuracy that nobody would act on.
MARGIN = 0.01
LEVEL = 0.95
#: More classes than this are identifiers, or numbers to regress on.
MOST_CLASSES = 50


@dataclass(frozen=True)
class ProbeResult:
    """What normalising does to a linear classifier.

    Attributes
    ----------
    table : DataFrame
        A row for each ``optimizer`` (optimum, sgd, adamw) and ``normalization``:

        - ``accuracy``: mean over the held-out folds, 0 to 1;
        - ``difference``: to ``none`` with the same optimizer, fold by fold, −1 to 1, above 0 is better;
        - ``low``, ``high``: its 95 % interval (``corrected_interval``);
        - ``train_loss``: mean log-loss of the training rows in nats, lower is further trained; NaN if they diverged at
          every learning rate;
        - ``setting``: median of what was chosen in the folds, one of ``PENALTIES`` or a learning rate;
        - ``verdict``: ``reference``; ``harmless`` if the interval lies within ±0.01; else ``better`` or ``worse`` if it
          excludes 0; else ``cannot be told apart``.
    n, n_classes : int
        Rows and classes that took part.
    majority : float
        Share of the largest class: the accuracy of always guessing it.
    dropped : int
        Rows left out, without a label or of a class of too few rows.
    fits, unconverged : int
        Fits at the optimum, those that chose the penalty included, and how many of them did not converge.
    folds, repeats, seed, steps : int
        As they were given.
    """

    table: pd.DataFrame
    n: int
    n_classes: int
    majority: float
    dropped: int
    fits: int
    unconverged: int
    folds: int
    repeats: int
    seed: int
    steps: int


def probe(
    rows: NDArray[Any],
    labels: Sequence[Any] | NDArray[Any],
    *,
    normalizations: Sequence[str] = DEFAULT,
    folds: int = 5,
    repeats: int = 2,
    seed: int = 0,
    steps: int = 200,
) -> ProbeResult:
    """Cross-validate a linear classifier on the vectors as they are and after each normalisation.

    ``optimum`` is logistic regression with an L2 penalty chosen by log-loss in an inner 3-fold cross-validation.
    ``sgd`` and ``adamw`` start one linear layer at zero and take ``steps`` steps of constant learning rate on batches
    of 32, the same in all arms, in float32 as networks are trained; AdamW decays weights by 0.01, SGD does not. The
    rate is chosen by log-loss on the first of the inner folds, of nine over four decades about what the length of the
    arm's rows calls for. Meant for a few thousand rows: each arm holds a copy of them.

    Parameters
    ----------
    rows : array, shape (n, d)
        One vector a row.
    labels : sequence of n
        Their classes.
    normalizations : sequence of str, default all
        Names of ``NORMALIZERS``; ``none`` is always there.
    folds, repeats : int, default 5 and 2
        Stratified cross-validation, repeated with other folds.
    seed : int, default 0
        Of folds and batches.
    steps : int, default 200
        Steps of SGD and AdamW.

    Raises
    ------
    DataError
        If the rows are not a matrix of finite numbers, are all the same, or the labels are no classes to probe for.
    OptionError
        If a normalisation is unknown or a number is out of range.
    """
    names = _arms(normalizations)
    for option, value, least in (("folds", folds, 2), ("repeats", repeats, 1), ("steps", steps, 1), ("seed", seed, 0)):
        _check_whole(option, value, least)
    x = as_matrix(rows)
    check_finite(x)
    y = probe_labels(labels, folds)
    if len(y) != len(x):
        raise DataError(f"{len(x)} rows, but {len(y)} labels")
    kept = y >= 0
    with single_threaded_blas():
        if profile_vectors(x[kept])[-1].collapsed:
            raise DataError("every row is the same vector: there is nothing to probe")
        runs = list(_cross_validate(Rows(x[kept], y[kept], names), folds, repeats, seed, steps))
    counts = np.bincount(y[kept])
    return ProbeResult(
        table=_table(pd.DataFrame([record for run in runs for record in run.records]), names, 1.0 / (folds - 1)),
        n=int(kept.sum()),
        n_classes=len(counts),
        majority=float(counts.max() / counts.sum()),
        dropped=int((~kept).sum()),
        fits=sum(run.fits for run in runs),
        unconverged=sum(run.unconverged for run in runs),
        folds=folds,
        repeats=repeats,
        seed=seed,
        steps=steps,
    )


def probe_labels(labels: Sequence[Any] | NDArray[Any] | None, folds: int = 5) -> Classes:
    """The class of each row as a number from 0 on, shape (n,); −1 where it has no label or its class too few rows.

    Too few are less than ``folds``, or so few that the inner folds would not each get one.

    Raises
    ------
    DataError
        If there are no labels, or they are not 2 to 50 classes; the message says why.
    """
    values = [] if labels is None else list(labels)
    try:
        codes, classes = pd.factorize(np.fromiter(values, dtype=object, count=len(values)))
    except TypeError:
        raise DataError(f"expected one label a row, got {type(values[0]).__name__}") from None
    if len(classes) == 0 or (len(classes) == 1 and str(classes[0]) in ("-1", "-1.0")):
        raise DataError("there are no labels to probe for")
    fractions = [label for label in classes if isinstance(label, float | np.floating) and label != np.floor(label)]
    if fractions:
        raise DataError(f"the labels are numbers such as {fractions[0]:g}, no classes: a probe is for classification")
    if len(classes) < 2:
        raise DataError(f"every label is {classes[0]}: a probe needs at least 2 classes")
    least = max(folds, -(-INNER_FOLDS * folds // (folds - 1)))
    frequent = np.flatnonzero(np.bincount(codes[codes >= 0]) >= least)
    if len(frequent) < 2:
        raise DataError(f"{len(frequent)} of {len(classes)} classes have at least {least} rows; a probe needs 2")
    if len(frequent) > MOST_CLASSES:
        raise DataError(f"{len(frequent)} classes: a probe takes at most {MOST_CLASSES}")
    numbers = np.full(len(classes) + 1, -1, dtype=np.int64)
    numbers[frequent] = np.arange(len(frequent))
    # The last entry is the one that the code −1 of missing labels picks.
    return np.asarray(numbers[codes])


def corrected_interval(differences: Array, test_to_train: float) -> tuple[float, float]:
    """95 % interval of the mean of J paired differences over resampled folds (Nadeau and Bengio 2003).

    mean ± t_{J−1} √((1/J + n_test/n_train)·s²): training sets overlap, so the differences are not J independent ones.
    For repeated cross-validation it is that of Bouckaert and Frank (2004).
    """
    j = len(differences)
    half = scipy.stats.t.ppf((1.0 + LEVEL) / 2.0, j - 1) * np.sqrt((1.0 / j + test_to_train) * differences.var(ddof=1))
    return float(differences.mean() - half), float(differences.mean() + half)


def _arms(normalizations: Sequence[str]) -> tuple[str, ...]:
    for name in normalizations:
        if name not in NORMALIZERS:
            raise OptionError(unknown_name("normalization", name, NORMALIZERS))
    return tuple(dict.fromkeys([REFERENCE, *normalizations]))


def _check_whole(option: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise OptionError(f"{option} must be a whole number from {least} on, got {value!r}")


# -- cross-validation ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Run:
    """What one split gives: a record for each optimizer and arm, and the count of fits."""

    records: list[Record]
    fits: int
    unconverged: int


def _cross_validate(rows: Rows, folds: int, repeats: int, seed: int, steps: int) -> Iterator[_Run]:
    outer = RepeatedStratifiedKFold(n_splits=folds, n_repeats=repeats, random_state=seed % 2**32)
    for number, (train, test) in enumerate(outer.split(rows.x, rows.y)):
        rng = np.random.default_rng((seed, number))
        inner = StratifiedKFold(INNER_FOLDS, shuffle=True, random_state=int(rng.integers(2**31)))
        choosing = [rows.fold(train[a], train[b]) for a, b in inner.split(train, rows.y[train])]
        yield _run(rows.names, rows.fold(train, test), choosing, rng, steps)


def _run(names: Sequence[str], fold: Fold, choosing: list[Fold], rng: np.random.Generator, steps: int) -> _Run:
    fitter = Fitter()
    optima = {
        name: at_optimum(fold, choosing, arm, fitter) for arm, name in enumerate(names) if name not in SAME_OPTIMUM
    }
    records = [optima[SAME_OPTIMUM.get(name, name)] | {"optimizer": "optimum", "normalization": name} for name in names]
    batches = [draw_batches(each.train_targets.shape[1], steps, rng) for each in (choosing[0], fold)]
    for optimizer, trainer in TRAINERS.items():
        reached = after_steps(fold, choosing[0], batches, trainer)
        records += [
            record | {"optimizer": optimizer, "normalization": name}
            for name, record in zip(names, reached, strict=True)
        ]
    return _Run(records, fitter.fits, fitter.unconverged)


# -- the table -------------------------------------------------------------------------------------------------------


def _table(records: pd.DataFrame, names: Sequence[str], test_to_train: float) -> pd.DataFrame:
    rows = []
    for optimizer in OPTIMIZERS:
        own = records[records["optimizer"] == optimizer]
        columns = {name: own[own["normalization"] == name] for name in names}
        reference = columns[REFERENCE]["accuracy"].to_numpy()
        for name, column in columns.items():
            differences = column["accuracy"].to_numpy() - reference
            low, high = corrected_interval(differences, test_to_train)
            rows.append(
                {
                    "optimizer": optimizer,
                    "normalization": name,
                    "accuracy": column["accuracy"].mean(),
                    "difference": differences.mean(),
                    "low": low,
                    "high": high,
                    "train_loss": column["train_loss"].mean(),
                    "setting": column["setting"].median(),
                    "verdict": "reference" if name == REFERENCE else _verdict(low, high),
                }
            )
    return pd.DataFrame(rows)


def _verdict(low: float, high: float) -> str:
    if low >= -MARGIN and high <= MARGIN:
        return "harmless"
    if low > 0.0:
        return "better"
    return "worse" if high < 0.0 else "cannot be told apart"
