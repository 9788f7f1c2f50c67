"""What every task has: a name, metrics, development rows in two halves, and scores of what is predicted for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Task(ABC):
    """Rows to train on and rows to judge by.

    Attributes
    ----------
    name : str
        As tables show it.
    metrics : tuple of str
        The first one chooses the learning rate. All are larger where predictions are better.
    dev_target : array (n, …)
        What should be predicted, one row for each of ``report``.
    report : bool array (n,)
        What results are reported on; the rest selects.
    n_train, n_dev : int
        Rows on either side.
    """

    name: str
    metrics: tuple[str, ...]
    dev_target: NDArray[Any]
    report: NDArray[np.bool_]

    @property
    @abstractmethod
    def n_train(self) -> int:
        """Rows to train on."""

    @property
    @abstractmethod
    def n_dev(self) -> int:
        """Rows to judge by."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What a run depends on: rows, labels and halves, as hashes, and the task's ``name``."""

    @abstractmethod
    def score(self, predicted: NDArray[Any], metric: str, half: NDArray[np.bool_]) -> float:
        """The metric of what is predicted for ``half`` of ``dev_target``, 0 to 1; NaN where it is undefined."""

    def scores(self, predicted: NDArray[Any], metric: str) -> tuple[float, float]:
        """The metric on the half that selects and on the one that reports; NaN where undefined."""
        return self.score(predicted, metric, ~self.report), self.score(predicted, metric, self.report)

    def majority(self, metric: str) -> float:
        """The metric, on the half that reports, of naming the most frequent class; NaN where there are no classes."""
        return float("nan")

    def degenerate(self, predicted: NDArray[Any]) -> bool:
        """Whether a run learned nothing: the same for all rows, or no better than no look at the text."""
        return bool((predicted == predicted[0]).all())

    def remark(self) -> str:
        """Sizes, and whatever else to know before runs begin."""
        select = self.n_dev - self.n_report
        return f"{self.name}: {self.n_train} rows to train, {select} to select, {self.n_report} to report"

    @property
    def n_report(self) -> int:
        """Rows that report."""
        return int(self.report.sum())
