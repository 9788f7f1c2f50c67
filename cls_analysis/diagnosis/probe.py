"""``probe``: whether normalising helps a linear classifier on the vectors, and if so its optimum or the way there.

Each normalisation is one arm, ``none`` the reference. On the same folds each arm gives the accuracy of a linear layer
at its optimum, after a number of steps of SGD, and after as many of AdamW. Whatever is fitted or chosen, the
normalisation included, sees training rows only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
import pandas as pd
import scipy.optimize
import scipy.stats
from numpy.typing import NDArray
from sklearn.model_selection import RepeatedStratifiedKFold, StratifiedKFold

from cls_analysis.errors import DataError, OptionError, unknown_name
from cls_analysis.matrices import profile_vectors
from cls_analysis.moments import Array, as_matrix, check_finite, single_threaded_blas
from cls_analysis.statistics.normalizers import NORMALIZERS

Classes = NDArray[np.int64]
Single = NDArray[np.float32]
Record = dict[str, Any]
Float = TypeVar("Float", np.float32, np.float64)

OPTIMIZERS = ("optimum", "sgd", "adamw")
#: All normalisations.
DEFAULT = tuple(NORMALIZERS)
REFERENCE = "none"
#: A shift goes into the intercept and a common factor into the penalty: these arms have the optimum of the reference.
SAME_OPTIMUM = {"scale": REFERENCE, "center": REFERENCE}
#: λ of mean log-loss + λ/2·v‖W‖², v the mean variance of the arm's dimensions: one grid suits rows of any scale.
PENALTIES = np.logspace(2, -6, 9)
BATCH = 32
#: Folds within the training rows, by which penalties and rates are chosen.
INNER_FOLDS = 3
#: Differences of accuracy that nobody would act on.
MARGIN = 0.01
LEVEL = 0.95
#: More classes than this are identifiers, or numbers to regress on.
MOST_CLASSES = 50
#: Largest entry of the gradient of a converged fit, in units of curvature 1: to choose a penalty, and of the last one.
ROUGH, FINE = 1e-4, 1e-6
MOST_ITERATIONS = 1_000
#: Principal axes of less than this share of the largest variance: the smallest penalty leaves nothing of them.
NEGLIGIBLE = 1e-12


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
        runs = list(_cross_validate(_Rows(x[kept], y[kept], names), folds, repeats, seed, steps))
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


# -- folds -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """Rows (n, d) in the dtype they came in, whose rounding decides what is dead; their classes; the arms."""

    x: NDArray[Any]
    y: Classes
    names: tuple[str, ...]

    def fold(self, train: Classes, test: Classes) -> _Fold:
        """Both halves of a split after each normalisation, which is fitted on the training rows."""
        layer = profile_vectors(self.x[train])[-1]
        normalizers = [NORMALIZERS[name](layer) for name in self.names]
        halves = [self.x[numbers].astype(np.float64) for numbers in (train, test)]
        a, b = (np.stack([normalize(half) for normalize in normalizers]) for half in halves)
        targets = np.eye(self.y.max() + 1)
        return _Fold(a, b, targets[:, self.y[train]], targets[:, self.y[test]])


@dataclass(frozen=True)
class _Fold:
    """Normalised rows, shape (arms, m, d), and their classes as columns of zeros and a one, shape (classes, m)."""

    train: Array
    test: Array
    train_targets: Array
    test_targets: Array

    @property
    def classes(self) -> int:
        return len(self.train_targets)

    def record(self, train_scores: Array, test_scores: Array, setting: float) -> Record:
        """What an arm reaches with these scores, shape (classes, m)."""
        right = test_scores.argmax(axis=0) == self.test_targets.argmax(axis=0)
        loss = float(_log_loss(train_scores, self.train_targets))
        return {"accuracy": float(right.mean()), "train_loss": loss, "setting": setting}


@dataclass(frozen=True)
class _Run:
    """What one split gives: a record for each optimizer and arm, and the count of fits."""

    records: list[Record]
    fits: int
    unconverged: int


def _cross_validate(rows: _Rows, folds: int, repeats: int, seed: int, steps: int) -> Iterator[_Run]:
    outer = RepeatedStratifiedKFold(n_splits=folds, n_repeats=repeats, random_state=seed % 2**32)
    for number, (train, test) in enumerate(outer.split(rows.x, rows.y)):
        rng = np.random.default_rng((seed, number))
        inner = StratifiedKFold(INNER_FOLDS, shuffle=True, random_state=int(rng.integers(2**31)))
        choosing = [rows.fold(train[a], train[b]) for a, b in inner.split(train, rows.y[train])]
        yield _run(rows.names, rows.fold(train, test), choosing, rng, steps)


def _run(names: Sequence[str], fold: _Fold, choosing: list[_Fold], rng: np.random.Generator, steps: int) -> _Run:
    fitter = _Fitter()
    optima = {
        name: _at_optimum(fold, choosing, arm, fitter) for arm, name in enumerate(names) if name not in SAME_OPTIMUM
    }
    records = [optima[SAME_OPTIMUM.get(name, name)] | {"optimizer": "optimum", "normalization": name} for name in names]
    batches = [_batches(each.train_targets.shape[1], steps, rng) for each in (choosing[0], fold)]
    for optimizer, trainer in TRAINERS.items():
        reached = _after_steps(fold, choosing[0], batches, trainer)
        records += [
            record | {"optimizer": optimizer, "normalization": name}
            for name, record in zip(names, reached, strict=True)
        ]
    return _Run(records, fitter.fits, fitter.unconverged)


def _log_loss(scores: Array, targets: Array) -> Array:
    """Mean −log p of the right class over the rows: scores (classes, m, …) and targets (classes, m) give (…)."""
    # Classes come first wherever scores are: a sum over a last axis of two entries is slow in NumPy.
    return np.asarray(-np.einsum("km,km...->m...", targets, _log_softmax(scores)).mean(axis=0))


def _log_softmax(scores: NDArray[Float]) -> NDArray[Float]:
    shifted = scores - scores.max(axis=0)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=0)), dtype=scores.dtype)


# -- the optimum -----------------------------------------------------------------------------------------------------


class _Fitter:
    """Fits logistic regressions, and counts them and those that did not converge."""

    def __init__(self) -> None:
        self.fits = self.unconverged = 0

    def fit(self, axes: _Axes, targets: Array, penalty: float, start: Array, tolerance: float) -> Array:
        """Minimise mean log-loss + λ/2‖W‖², shape (columns, k + 1); the intercept, last, is free.

        L-BFGS in units in which every coordinate has about curvature 1. In those of the rows, ill-conditioned ones
        would take thousands of iterations, and the arms would differ in how far they got.
        """
        classes, m = targets.shape
        columns, width = start.shape
        shrink = np.append(np.full(width - 1, penalty), 0.0)
        # At even odds the curvature of the log-loss is p(1 − p) times the mean square of the coordinate.
        unit = 1.0 / np.sqrt((1.0 - 1.0 / classes) / classes * axes.mean_squares + shrink)

        def objective(flat: Array) -> tuple[float, Array]:
            weights = flat.reshape(columns, width) * unit
            log_p = _log_softmax(axes.scores(axes.train, weights, classes))
            residual = (np.exp(log_p) - targets)[-columns:] / m
            loss = 0.5 * np.vdot(weights, shrink * weights) - np.vdot(log_p, targets) / m
            return float(loss), ((residual @ axes.train + shrink * weights) * unit).ravel()

        found = scipy.optimize.minimize(
            objective,
            np.ravel(start / unit),
            jac=True,
            method="L-BFGS-B",
            options={"gtol": tolerance, "ftol": 0.0, "maxiter": MOST_ITERATIONS, "maxfun": 2 * MOST_ITERATIONS},
        )
        self.fits += 1
        self.unconverged += not found.success
        return np.asarray(found.x.reshape(columns, width) * unit)


@dataclass(frozen=True)
class _Axes:
    """Training and test rows along the training rows' principal axes, and a last column of ones, shape (m, k + 1).

    Centred and divided by one number, so that the variance of a dimension is 1 on average. A fit with an L2 penalty
    and a free intercept sees neither shift nor rotation, and there are no more axes than rows.
    """

    train: Array
    test: Array

    @classmethod
    def of(cls, train: Array, test: Array) -> _Axes:
        mean = train.mean(axis=0)
        size = np.sqrt(((train - mean) ** 2).mean()) or 1.0
        a, b = (train - mean) / size, (test - mean) / size
        few = len(a) < a.shape[1]
        values, vectors = np.linalg.eigh(a @ a.T if few else a.T @ a)
        kept = values > NEGLIGIBLE * values[-1]
        axes = a.T @ (vectors[:, kept] / np.sqrt(values[kept])) if few else vectors[:, kept]
        return cls(_with_ones(a @ axes), _with_ones(b @ axes))

    @cached_property
    def mean_squares(self) -> Array:
        """Of each column, shape (k + 1,)."""
        return np.asarray((self.train**2).mean(axis=0))

    def start(self, classes: int) -> Array:
        """Weights of zero; two classes need the scores of one only."""
        return np.zeros((1 if classes == 2 else classes, self.train.shape[1]))

    @staticmethod
    def scores(rows: Array, weights: Array, classes: int) -> Array:
        """Shape (classes, m); 0 for the first of two classes."""
        scores = np.zeros((classes, len(rows)))
        scores[-len(weights) :] = weights @ rows.T
        return scores


def _with_ones(rows: Array) -> Array:
    """Rows (…, m, d) with a last column of ones, which carries the intercept."""
    return np.concatenate([rows, np.ones((*rows.shape[:-1], 1))], axis=-1)


def _at_optimum(fold: _Fold, choosing: Sequence[_Fold], arm: int, fitter: _Fitter) -> Record:
    """Record of logistic regression with the penalty whose log-loss is least on average over the inner folds."""
    losses = np.mean([_held_out_losses(each, arm, fitter) for each in choosing], axis=0)
    penalty = float(PENALTIES[losses.argmin()])
    axes = _Axes.of(fold.train[arm], fold.test[arm])
    weights = fitter.fit(axes, fold.train_targets, penalty, axes.start(fold.classes), FINE)
    train, test = (axes.scores(rows, weights, fold.classes) for rows in (axes.train, axes.test))
    return fold.record(train, test, penalty)


def _held_out_losses(fold: _Fold, arm: int, fitter: _Fitter) -> Array:
    """Log-loss of the held-out rows with each of the penalties, shape (penalties,)."""
    axes = _Axes.of(fold.train[arm], fold.test[arm])
    weights, losses = axes.start(fold.classes), []
    for penalty in PENALTIES:
        weights = fitter.fit(axes, fold.train_targets, float(penalty), weights, ROUGH)
        losses.append(_log_loss(axes.scores(axes.test, weights, fold.classes), fold.test_targets))
    return np.array(losses)


# -- SGD and AdamW ---------------------------------------------------------------------------------------------------


class _Optimizer(ABC):
    """Trains many layers at once; the rates broadcast to the weights."""

    #: Learning rates that are tried, in multiples of ``unit``: normalising changes which rates are large ones.
    MULTIPLES: ClassVar[Array]

    def __init__(self, weights: Single, rates: Single) -> None:
        self.rates = rates

    @staticmethod
    @abstractmethod
    def unit(x: Single) -> Array:
        """The learning rate in proportion to the size of rows (arms, m, d + 1), shape (arms,)."""

    @abstractmethod
    def step(self, weights: Single, gradient: Single) -> None:
        """Change ``weights`` in place."""


class _SGD(_Optimizer):
    """w ← w − ηg, η in units of 1/E‖x‖²: it becomes unstable at about 8 of them if one direction has all the energy."""

    MULTIPLES = np.logspace(-2.5, 1.5, 9)

    @staticmethod
    def unit(x: Single) -> Array:
        return np.asarray(1.0 / (x.astype(np.float64) ** 2).sum(axis=2).mean(axis=1))

    def step(self, weights: Single, gradient: Single) -> None:
        weights -= self.rates * gradient


class _AdamW(_Optimizer):
    """AdamW with torch's defaults (Loshchilov and Hutter 2019), η in units of 1/√Ex²; as there, the bias decays too."""

    MULTIPLES = np.logspace(-4.0, 0.0, 9)
    BETA1, BETA2, EPS, DECAY = 0.9, 0.999, 1e-8, 0.01

    def __init__(self, weights: Single, rates: Single) -> None:
        super().__init__(weights, rates)
        self.mean, self.square = np.zeros_like(weights), np.zeros_like(weights)
        self.steps = 0

    @staticmethod
    def unit(x: Single) -> Array:
        return np.asarray(1.0 / np.sqrt((x.astype(np.float64) ** 2).mean(axis=(1, 2))))

    def step(self, weights: Single, gradient: Single) -> None:
        self.steps += 1
        self.mean += (1.0 - self.BETA1) * (gradient - self.mean)
        self.square += (1.0 - self.BETA2) * (gradient * gradient - self.square)
        root = np.sqrt(self.square) / np.float32(np.sqrt(1.0 - self.BETA2**self.steps)) + self.EPS
        weights *= 1.0 - self.rates * self.DECAY
        weights -= self.rates / (1.0 - self.BETA1**self.steps) * (self.mean / root)


TRAINERS: dict[str, type[_Optimizer]] = {"sgd": _SGD, "adamw": _AdamW}


def _batches(m: int, steps: int, rng: np.random.Generator) -> Classes:
    """Row numbers of each batch, shape (steps, 32), shuffled anew whenever all rows have been seen."""
    epochs = -(-steps * BATCH // m)
    shuffled = np.concatenate([rng.permutation(m) for _ in range(epochs)])
    return np.asarray(shuffled[: steps * BATCH].reshape(steps, BATCH))


def _after_steps(fold: _Fold, choosing: _Fold, batches: Sequence[Classes], trainer: type[_Optimizer]) -> list[Record]:
    """A record for each arm, with the rate of the least log-loss on the held-out rows of an inner fold."""
    # Of a rate at which training diverges, the log-loss is not finite, and the rate not chosen.
    with np.errstate(over="ignore", invalid="ignore"):
        rows, held_out = _single(choosing.train), _single(choosing.test)
        tried = np.outer(trainer.unit(rows), trainer.MULTIPLES)
        weights = _train(rows, choosing.train_targets, batches[0], tried, trainer)
        losses = np.array([_log_loss(each, choosing.test_targets) for each in _scores(held_out, weights)])
        best = trainer.MULTIPLES[np.where(np.isfinite(losses), losses, np.inf).argmin(axis=1)]
        rows, held_out = _single(fold.train), _single(fold.test)
        rates = trainer.unit(rows) * best
        weights = _train(rows, fold.train_targets, batches[1], rates[:, None], trainer)
        scores = zip(_scores(rows, weights), _scores(held_out, weights), strict=True)
        return [
            fold.record(train[..., 0], test[..., 0], float(rate))
            for (train, test), rate in zip(scores, rates, strict=True)
        ]


def _single(rows: Array) -> Single:
    return _with_ones(rows).astype(np.float32)


def _train(x: Single, targets: Array, batches: Classes, rates: Array, trainer: type[_Optimizer]) -> Single:
    """Weights after a step on each batch, from zero on, shape (arms, d + 1, classes, rates).

    Rows (arms, m, d + 1), targets (classes, m), rates (arms, rates).
    """
    (arms, _, width), classes, runs = x.shape, len(targets), rates.shape[1]
    weights = np.zeros((arms, width, classes * runs), dtype=np.float32)
    optimizer = trainer(weights, np.tile(rates, classes)[:, None, :].astype(np.float32))
    share = np.float32(1.0 / BATCH)
    goal = targets.astype(np.float32) * share
    for batch in batches:
        rows = x[:, batch]
        scores = np.moveaxis((rows @ weights).reshape(arms, BATCH, classes, runs), 2, 0)
        residual = np.exp(_log_softmax(scores)) * share - goal[:, None, batch, None]
        residual = np.moveaxis(residual, 0, 2).reshape(arms, BATCH, classes * runs)
        optimizer.step(weights, rows.transpose(0, 2, 1) @ residual)
    return weights.reshape(arms, width, classes, runs)


def _scores(x: Single, weights: Single) -> Array:
    """Scores of rows (arms, m, d + 1), shape (arms, classes, m, rates), float64."""
    arms, width, classes, runs = weights.shape
    scores = (x @ weights.reshape(arms, width, classes * runs)).reshape(arms, -1, classes, runs)
    return np.moveaxis(scores.astype(np.float64), 2, 1)


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
