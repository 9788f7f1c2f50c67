"""Sums over all pairs of rows of two kernels, whole and for subsamples of the rows, a block of rows at a time.

Both representational similarity (a correlation over pairs) and debiased CKA (a ratio of U-statistics) are functions of
these sums, so that one pass gives each of them with its interval and its permutation null.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cls_analysis.moments import Array

#: Numbers of a block of a kernel that are held at once.
BLOCK_NUMBERS = 1 << 20


@dataclass(frozen=True)
class PairSums:
    """Of kernels k and l, for each of c subsamples of rows; every array has shape (c,).

    Attributes
    ----------
    n : array
        Rows of the subsample.
    k, l, kk, ll, kl : arrays
        Sums of k_ij, l_ij, k_ij², l_ij², k_ij·l_ij over ordered pairs i ≠ j of its rows.
    rows_kk, rows_ll, rows_kl : arrays
        Sums over i of r_i², s_i², r_i·s_i, where r_i = Σ_j k_ij and s_i = Σ_j l_ij, j ≠ i.
    """

    n: Array
    k: Array
    l: Array  # noqa: E741 (the second kernel's name in the literature)
    kk: Array
    ll: Array
    kl: Array
    rows_kk: Array
    rows_ll: Array
    rows_kl: Array


def pair_sums(x: Array, y: Array, members: Array, *, shift: tuple[float, float] = (0.0, 0.0)) -> PairSums:
    """Sums over pairs of the kernels x·xᵀ − shift₁ and y·yᵀ − shift₂.

    Parameters
    ----------
    x, y : float64 arrays (n, d) and (n, e)
        Row i of both is the same stimulus.
    members : float64 array (n, c)
        1 where a row belongs to a subsample, else 0.
    shift : two floats
        Taken off every entry. Kernels that hardly vary around a large value keep their digits this way.

    Returns
    -------
    PairSums
    """
    n, c = members.shape
    sums = np.zeros((8, c))
    step = max(1, BLOCK_NUMBERS // n)
    for start in range(0, n, step):
        own = members[start : start + step]
        k, l = (rows[start : start + step] @ rows.T - by for rows, by in zip((x, y), shift, strict=True))  # noqa: E741
        here = np.arange(len(own))
        k[here, start + here] = l[here, start + here] = 0.0
        of_k, of_l = k @ members, l @ members
        for place, of_rows in enumerate((of_k, of_l, (k * k) @ members, (l * l) @ members, (k * l) @ members)):
            sums[place] += (own * of_rows).sum(axis=0)
        for place, product in enumerate((of_k * of_k, of_l * of_l, of_k * of_l), start=5):
            sums[place] += (own * product).sum(axis=0)
    return PairSums(members.sum(axis=0), *sums)


def pair_correlation(sums: PairSums) -> Array:
    """Pearson's correlation of k and l over pairs, shape (c,); NaN where one of them does not vary."""
    pairs = sums.n * (sums.n - 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        kl = sums.kl - sums.k * sums.l / pairs
        kk, ll = sums.kk - sums.k**2 / pairs, sums.ll - sums.l**2 / pairs
        return np.asarray(kl / np.sqrt(np.where((kk > 0) & (ll > 0), kk * ll, np.nan)))


def debiased_ratio(sums: PairSums) -> Array:
    """Debiased CKA of the kernels, shape (c,): U-statistics of HSIC (Song et al. 2007) over those of the two alone.

    It can be negative; NaN where one of the two is not positive, or n is below 4.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        kl, kk, ll = (
            _hsic(sums.n, *of)
            for of in (
                (sums.kl, sums.k, sums.l, sums.rows_kl),
                (sums.kk, sums.k, sums.k, sums.rows_kk),
                (sums.ll, sums.l, sums.l, sums.rows_ll),
            )
        )
        return np.asarray(kl / np.sqrt(np.where((kk > 0) & (ll > 0) & (sums.n > 3), kk * ll, np.nan)))


def _hsic(n: Array, kl: Array, k: Array, l: Array, rows: Array) -> Array:  # noqa: E741
    return np.asarray((kl + k * l / ((n - 1) * (n - 2)) - 2 * rows / (n - 2)) / (n * (n - 3)))


def correlation_null(sums: PairSums) -> Array:
    """Standard deviation of the correlation under permutations of one kernel's rows (Mantel 1967), shape (c,).

    Exact; the mean is 0.
    """
    n = sums.n
    pairs = n * (n - 1)
    of_both = []
    for total, squares, rows in ((sums.k, sums.kk, sums.rows_kk), (sums.l, sums.ll, sums.rows_ll)):
        # Of the kernel without its mean over pairs.
        square = squares - total**2 / pairs
        row = rows - total**2 / n
        of_both.append((2 * square, 4 * (row - square), 2 * square - 4 * row, square))
    (same_k, shared_k, apart_k, kk), (same_l, shared_l, apart_l, ll) = of_both
    # Two pairs of rows are the same one, share a row, or are disjoint; their numbers of orderings are in the sums.
    variance = same_k * same_l / (2 * pairs) + shared_k * shared_l / (4 * pairs * (n - 2))
    variance = variance + apart_k * apart_l / (pairs * (n - 2) * (n - 3))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.sqrt(variance / (kk * ll)))


def debiased_null(n: int) -> float:
    """Standard deviation of debiased CKA under permutations of one kernel's rows: √(2/(n(n − 3))), whatever the data.

    The mean is 0. Exact: the U-centred kernels (Székely and Rizzo 2014) have rows that sum to 0, so that the second
    moments of their entries, and with them Mantel's variance, depend on n alone.
    """
    return float(np.sqrt(2.0 / (n * (n - 3))))


def subsamples(n: int, count: int, seed: int) -> Array:
    """Members (n, 1 + 2·count): all rows, ``count`` halves and ``count`` quarters, without replacement."""
    rng = np.random.default_rng(seed)
    members = np.zeros((n, 1 + 2 * count))
    members[:, 0] = 1.0
    for column in range(2 * count):
        members[rng.permutation(n)[: n // (2 if column < count else 4)], 1 + column] = 1.0
    return members


def deviation(values: Array) -> float:
    """Standard error of a statistic of pairs, from its values on all rows, on halves and on quarters.

    Parameters
    ----------
    values : array (1 + 2·count,)
        In the order of ``subsamples``.

    Notes
    -----
    A U-statistic of pairs varies by A/n + B/n² (Hoeffding 1948). Halves scatter around the whole by A/n + 3B/n²,
    quarters by 3A/n + 15B/n²: halves alone would be √3 too wide where A vanishes, as for independent vectors. B is
    taken from both and cannot be negative, nor larger than halves allow.
    """
    count = (len(values) - 1) // 2
    halves, quarters = (float(np.var(part, ddof=1)) for part in (values[1 : 1 + count], values[1 + count :]))
    second = min(max((quarters - 3 * halves) / 6, 0.0), halves / 3)
    return float(np.sqrt(halves - 2 * second))
