"""``Moments``: streaming, mergeable moments of an (n, d) stream, exact to float64 rounding.

Blocks are centred on their own mean and joined by the pairwise formulas of Chan, Golub and LeVeque (1979) and, for
the third and fourth moment, of Pébay (2008, SAND2008-6212, eqs. 2.1 to 2.9). Sums of powers are never formed: they
cancel catastrophically where the mean is large, which is what a biased embedding looks like.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import ThreadpoolController

from cls_analysis.errors import DataError

Array = NDArray[np.float64]

#: Rows reduced at a time: small enough that the float64 copies stay in the cache, large enough for one fast product.
CHUNK = 2_048
#: Names of the state beside the count and the co-moments.
STATE = ("mean", "mean_low", "m2", "m3", "m4", "minimum", "maximum")
#: A standard deviation below this many roundings of the largest magnitude is rounding, not variation.
ROUNDINGS = 16.0


class Moments:
    """Moments of the rows seen so far.

    Parameters
    ----------
    dim : int
        Number of columns d.
    covariance : bool, default True
        Also keep the (d, d) co-moments; without them memory and time are O(d) per row.

    Notes
    -----
    All results are float64. What the rows do not define is NaN: everything at n = 0; skewness and kurtosis at n = 1
    and in dimensions that do not vary.
    """

    def __init__(self, dim: int, *, covariance: bool = True) -> None:
        if dim < 1:
            raise DataError(f"Moments need at least one dimension, got {dim}")
        self.dim = dim
        self.n = 0
        # The mean as a sum of two numbers: where it is a million times the spread, the rounding of one is too coarse.
        self._mean = np.zeros(dim)
        self._mean_low = np.zeros(dim)
        # Sums of the 2nd, 3rd and 4th powers of the deviations from the mean, and of their products.
        self._m2 = np.zeros(dim)
        self._m3 = np.zeros(dim)
        self._m4 = np.zeros(dim)
        self._products = np.zeros((dim, dim)) if covariance else None
        self._minimum = np.full(dim, np.inf)
        self._maximum = np.full(dim, -np.inf)

    # -- adding rows ---------------------------------------------------------------------------------------------

    def update(self, x: ArrayLike) -> None:
        """Add the rows of ``x``, shape (m, d), in place; m may be 0.

        Raises
        ------
        DataError
            If the shape is wrong or a value is not finite; the moments then stay as they were.
        """
        expected = f"Moments of dimension {self.dim} take arrays of shape (n, {self.dim})"
        rows = as_matrix(x, expected)
        if rows.shape[1] != self.dim:
            raise DataError(f"{expected}, got {rows.shape}")
        check_finite(rows, first_row=self.n)
        for start in range(0, len(rows), CHUNK):
            self._absorb(_moments_of_chunk(rows[start : start + CHUNK], covariance=self._products is not None))

    def merge(self, other: Moments) -> Moments:
        """A new ``Moments`` of the rows of both; neither is changed. An empty one is neutral."""
        if self.dim != other.dim:
            raise DataError(f"cannot merge moments of dimension {self.dim} with {other.dim}")
        if (self._products is None) != (other._products is None):
            raise DataError("cannot merge moments with covariance and moments without")
        merged = Moments(self.dim, covariance=self._products is not None)
        merged._absorb(self)
        merged._absorb(other)
        return merged

    def _absorb(self, other: Moments) -> None:
        """Join the rows of ``other`` to this one (Pébay 2008, eqs. 2.1 to 2.9)."""
        if other.n == 0:
            return
        a, b = float(self.n), float(other.n)
        n = a + b
        if self.n == 0:
            self._mean, self._mean_low = other._mean.copy(), other._mean_low.copy()
        delta = (other._mean - self._mean) + (other._mean_low - self._mean_low)
        ratio = delta / n
        self._m4 += other._m4 + delta * ratio**3 * (a * b * (a * a - a * b + b * b))
        self._m4 += 6.0 * ratio**2 * (a * a * other._m2 + b * b * self._m2)
        self._m4 += 4.0 * ratio * (a * other._m3 - b * self._m3)
        self._m3 += other._m3 + delta * ratio**2 * (a * b * (a - b)) + 3.0 * ratio * (a * other._m2 - b * self._m2)
        self._m2 += other._m2 + delta * ratio * (a * b)
        if self._products is not None and other._products is not None:
            self._products += other._products
            if self.n:
                self._products += np.outer(delta, delta) * (a * b / n)
        self._mean, self._mean_low = _two_sum(self._mean, self._mean_low + ratio * b)
        np.minimum(self._minimum, other._minimum, out=self._minimum)
        np.maximum(self._maximum, other._maximum, out=self._maximum)
        self.n += other.n

    # -- results -------------------------------------------------------------------------------------------------

    @property
    def mean(self) -> Array:
        """Mean of each dimension, shape (d,)."""
        return self._mean.copy() if self.n else self._undefined()

    @property
    def variance(self) -> Array:
        """Population variance (divided by n), shape (d,)."""
        return self._m2 / self.n if self.n else self._undefined()

    @property
    def std(self) -> Array:
        """Population standard deviation, shape (d,)."""
        return np.sqrt(self.variance)

    @property
    def skewness(self) -> Array:
        """g1 = m3 / m2^1.5 (biased; SciPy's default), shape (d,); NaN where a dimension does not vary."""
        return self._standardized(self._m3, 1.5) if self.n else self._undefined()

    @property
    def kurtosis_excess(self) -> Array:
        """g2 = m4 / m2² − 3 (biased, Fisher; SciPy's default), shape (d,); NaN where a dimension does not vary."""
        return self._standardized(self._m4, 2.0) - 3.0 if self.n else self._undefined()

    @property
    def minimum(self) -> Array:
        """Smallest value of each dimension, shape (d,)."""
        return self._minimum.copy() if self.n else self._undefined()

    @property
    def maximum(self) -> Array:
        """Largest value of each dimension, shape (d,)."""
        return self._maximum.copy() if self.n else self._undefined()

    @property
    def constant(self) -> NDArray[np.bool_]:
        """Dimensions whose spread is nil or below the rounding of float64, shape (d,)."""
        if self.n == 0:
            return np.ones(self.dim, dtype=bool)
        magnitude = np.maximum(np.abs(self._minimum), np.abs(self._maximum))
        rounding = ROUNDINGS * np.finfo(np.float64).eps * magnitude
        return np.asarray((self._minimum == self._maximum) | (np.sqrt(self._m2 / self.n) <= rounding))

    @property
    def has_covariance(self) -> bool:
        """Whether the (d, d) co-moments are kept."""
        return self._products is not None

    @property
    def covariance(self) -> Array:
        """Population covariance (divided by n), shape (d, d)."""
        if self._products is None:
            raise DataError("these moments were kept without covariance; make them with Moments(dim, covariance=True)")
        if self.n == 0:
            return np.full((self.dim, self.dim), np.nan)
        covariance = self._products / self.n
        np.fill_diagonal(covariance, self.variance)
        return covariance

    @property
    def second_moment(self) -> Array:
        """E[x xᵀ], not centred, shape (d, d)."""
        return self.covariance + np.outer(self.mean, self.mean)

    @property
    def energy(self) -> Array:
        """E[x_i²], the diagonal of ``second_moment``, shape (d,); needs no covariance."""
        return self.variance + self.mean**2

    def _standardized(self, power_sum: Array, exponent: float) -> Array:
        variance = np.where(self.constant, np.nan, self.variance)
        return np.asarray(power_sum / self.n / variance**exponent)

    def _undefined(self) -> Array:
        return np.full(self.dim, np.nan)

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"Moments(n={self.n}, dim={self.dim}, covariance={self.has_covariance})"

    # -- state ---------------------------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The whole state as named arrays; ``from_arrays`` restores it bit for bit."""
        arrays: dict[str, NDArray[Any]] = {"n": np.array([self.n], dtype=np.int64)}
        arrays |= {name: getattr(self, f"_{name}").copy() for name in STATE}
        if self._products is not None:
            arrays["products"] = self._products.copy()
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Moments:
        """The ``Moments`` whose ``to_arrays`` gave ``arrays``.

        Raises
        ------
        DataError
            If an array is missing, has the wrong shape, or cannot be the state of any rows.
        """
        missing = [name for name in ("n", *STATE) if name not in arrays]
        if missing:
            raise DataError(f"moments lack {', '.join(missing)}")
        state = {name: np.array(arrays[name], dtype=np.float64) for name in STATE}
        count = np.asarray(arrays["n"])
        if count.size != 1 or count.dtype.kind not in "iu" or state["mean"].ndim != 1:
            raise DataError(
                f"moments need one whole number n and a mean of shape (d,), got {count.dtype} {count.shape}"
            )
        moments = cls(max(state["mean"].size, 1), covariance="products" in arrays)
        moments.n = int(count.reshape(-1)[0])
        for name, values in state.items():
            setattr(moments, f"_{name}", values)
        if "products" in arrays:
            moments._products = np.array(arrays["products"], dtype=np.float64)
        moments._check_state()
        return moments

    def _check_state(self) -> None:
        vectors = {name: getattr(self, f"_{name}") for name in STATE}
        wrong = [name for name, values in vectors.items() if values.shape != (self.dim,)]
        if wrong:
            raise DataError(f"moments of dimension {self.dim}: {wrong[0]} has shape {vectors[wrong[0]].shape}")
        # Of no rows, minimum and maximum are infinite.
        finite = [name for name in STATE if self.n > 0 or name not in ("minimum", "maximum")]
        if self.n < 0 or not all(np.isfinite(vectors[name]).all() for name in finite):
            raise DataError("moments with a negative count, or values that are not finite")
        if (self._m2 < 0).any() or (self._m4 < 0).any() or (self.n and (self._minimum > self._maximum).any()):
            raise DataError("these cannot be the moments of any rows (a negative even moment, or minimum > maximum)")
        if self._products is not None:
            self._check_products(self._products)

    def _check_products(self, products: Array) -> None:
        if products.shape != (self.dim, self.dim):
            raise DataError(f"co-moments have shape {products.shape}, expected {(self.dim, self.dim)}")
        if not np.isfinite(products).all() or not np.array_equal(products, products.T):
            raise DataError("co-moments are not finite or not symmetric")
        if not np.allclose(np.diag(products), self._m2, rtol=1e-8, atol=0.0):
            raise DataError("the diagonal of the co-moments is not the second moment")


def as_matrix(x: ArrayLike, expected: str = "expected a matrix of numbers (n, d)") -> NDArray[Any]:
    """``x`` as a matrix of real numbers, shape (n, d), not copied where it is one; else ``DataError``."""
    try:
        rows = np.asarray(x)
    except (ValueError, TypeError) as error:
        raise DataError(f"{expected}, got {type(x).__name__} ({error})") from None
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise DataError(f"{expected}, got {rows.dtype} of shape {rows.shape}")
    return rows


def check_finite(rows: NDArray[Any], *, first_row: int = 0) -> None:
    """Raise ``DataError`` naming the first row and dimension of ``rows`` that is not finite."""
    if rows.size == 0 or rows.dtype.kind in "iub":
        return
    # min and max are finite exactly if all values are; no array of rows.size booleans is made for the usual case.
    if np.isfinite(rows.min()) and np.isfinite(rows.max()):
        return
    row, dimension = (int(index) for index in np.argwhere(~np.isfinite(rows))[0])
    raise DataError(f"row {first_row + row}, dimension {dimension}: value {rows[row, dimension]} is not finite")


def _moments_of_chunk(rows: NDArray[Any], *, covariance: bool) -> Moments:
    moments = Moments(rows.shape[1], covariance=covariance)
    moments.n = len(rows)
    moments._minimum = rows.min(axis=0).astype(np.float64)
    moments._maximum = rows.max(axis=0).astype(np.float64)
    # Subtracting the first row before the mean makes a constant column exactly 0, and keeps the digits of a column
    # whose mean is much larger than its spread.
    origin = rows[0].astype(np.float64)
    deviations = np.subtract(rows, origin, dtype=np.float64)
    shift = deviations.mean(axis=0)
    deviations -= shift
    moments._mean, moments._mean_low = _two_sum(origin, shift)
    squares = deviations * deviations
    moments._m2 = squares.sum(axis=0)
    moments._m3 = np.einsum("ij,ij->j", squares, deviations)
    moments._m4 = np.einsum("ij,ij->j", squares, squares)
    if moments._products is not None:
        moments._products = product(deviations)
    return moments


def product(x: Array) -> Array:
    """xᵀx by one symmetric product, shape (d, d); exactly symmetric."""
    return np.asarray(x.T @ x)


@lru_cache(maxsize=1)
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def single_threaded_blas() -> Any:
    """A context in which small linear algebra keeps to one thread; more of them stall each other on a busy machine."""
    # Looking for the libraries takes milliseconds, more than many a decomposition: once is enough.
    return _blas().limit(limits=1, user_api="blas")


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Give a + b rounded, and what the rounding lost (Knuth 1969)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
