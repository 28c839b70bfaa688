"""The E-step over a block of documents, compiled.

Coordinate ascent on q(theta) = Dir(gamma), q(z_n) = phi_n for every document by itself, for any response that a family
describes by l and its derivatives (docs/model.md, section 1). What makes it fast, and why it is still exact:

* phi_n is proportional to beta_n * exp(E[log theta] + a_n eta + b eta^2), and between the tokens of a document only the
  number a_n changes, by little. With r = exp(... a_base ...), the moments M_j = sum_k beta_k r_k eta_k^j of a whole tile
  of terms do not depend on each other: they are computed first, vectorised over terms. With t = a_n - a_base and the
  cumulants kappa_j of eta under phi at a_base, eta'phi_n = kappa_1 + t kappa_2 + t^2 kappa_3 / 2, so the chain from
  token to token that coordinate ascent demands is left with half a dozen scalar operations. Where t is too large
  (short documents, small dispersion) the token is updated by itself.
* sum_n phi_n needs, per term, only the sums of 1/Z, t/Z and t^2/(2 Z) over its occurrences, times beta: a second
  vectorised pass.
* eta is centred on its mean, which keeps t small; omega gets the mean back as an offset, and since phi sums to 1 nothing
  else changes.
* Tokens keep two numbers each (a_n and m_n = eta'phi_n). phi is written out once, after the last sweep.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float64, int32, int64, njit, types
from numpy.typing import NDArray

from dslda.families.base import SCALAR_SIGNATURE
from dslda.variational.special import FASTMATH, exp_shifted, log, log_gamma_sum_and_digamma

__all__ = ["SCALARS", "e_step_block"]

# names of the entries of `scalars`, in order
SCALARS = ("dispersion", "elbo", "n_labelled", "n_empty", "n_unconverged", "n_sweeps", "n_tokens")

# A Taylor series with three cumulants stands in for exp as long as |t|^3 max|eta| E[eta^2] stays below this cube. Six times
# that bounds its error in an entry's share of sum phi during the sweeps (2e-8); its error in the ELBO and in the phi that
# is written out is smaller by |t| max|eta| / 4. E[eta^2], under the entry's own phi, keeps a topic with a wild coefficient
# and no mass from spoiling it for all.
TAYLOR_LIMIT = 1.25e-7
# largest |t| max|eta| for that series, and for one of degree 8 for an entry by itself: error x^9 / 9! < 2e-11
SERIES_LIMIT = 0.25
# entries tried at once after one that needed exponentials, when more are likely to
_SHORT_RUN = 4
# a_base moves when the next tile is expected to start with |t| rms(eta) above this
_REBASE_LIMIT = 1e-3
# topic weights below this are zero: products of two such factors stay normal numbers
SMALLEST_WEIGHT = 1e-100
# terms in a tile are a multiple of this: the compiled loops take sixteen at a time, the rest one by one
_LANES = 16
_WIDEST = 112
# doubles in a tile of K x terms, so that it stays in a second-level cache
_TILE_DOUBLES = 1 << 15
# a term whose normaliser is below this lives only in topics at the floor of exp_shifted: it gets a shift of its own
SMALLEST_NORMALISER = 1e-80
# doubles of one document's gathered topic weights; longer documents gather tile by tile in every sweep
_RESIDENT_DOUBLES = 1 << 19

_OPTIONS = {"cache": True, "nogil": True, "fastmath": FASTMATH, "error_model": "numpy"}

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


# A vectorised loop that reads one array and writes another first compares their addresses, and takes another order of
# summation where they lie closer than a few vectors: the last bits would depend on the allocator. Hence the guards.
_GUARD = 64


@njit(**_OPTIONS)
def _vector(n: int) -> Vector:  # pragma: no cover - compiled
    """Uninitialised scratch, at least 2 * _GUARD doubles away from any other."""
    return np.empty(n + 2 * _GUARD)[_GUARD : _GUARD + n]


@njit(**_OPTIONS)
def _matrix(n_rows: int, n_columns: int) -> Matrix:  # pragma: no cover - compiled
    """Scratch of zeros, at least 2 * _GUARD doubles away from any other."""
    return np.zeros(n_rows * n_columns + 2 * _GUARD)[_GUARD : _GUARD + n_rows * n_columns].reshape(
        (n_rows, n_columns)
    )


@njit(**_OPTIONS)
def _tile_width(n: int, n_topics: int) -> int:  # pragma: no cover - compiled
    """Terms in each tile of a document of `n` terms: a multiple of `_LANES`, tiles as equal as can be."""
    widest = min(_WIDEST, max(2 * _LANES, _TILE_DOUBLES // n_topics // _LANES * _LANES))
    n_tiles = (n + widest - 1) // widest
    return ((n + n_tiles - 1) // n_tiles + _LANES - 1) // _LANES * _LANES


# A document's tiles of topic weights are rows row, ..., row + K - 1 of one matrix, padded with zeros on the right: a view
# made per tile would cost more than the arithmetic on it.


@njit(**_OPTIONS)
def _cut(weight: float) -> float:  # pragma: no cover - compiled
    return weight if weight >= SMALLEST_WEIGHT else 0.0


@njit(**_OPTIONS)
def _is_known(topics: Matrix, term: int) -> bool:  # pragma: no cover - compiled
    """Whether the term has mass in some topic; as a rule the first topic answers."""
    for k in range(topics.shape[1]):
        if topics[term, k] >= SMALLEST_WEIGHT:
            return True
    return False


@njit(**_OPTIONS)
def _gather(
    topics: Matrix, terms: NDArray[np.int32], start: int, stop: int, tiles: Matrix, row: int
) -> None:  # pragma: no cover - compiled
    """Write the tile of terms[start:stop]."""
    n = stop - start
    blocked = n - n % 4
    for e in range(0, blocked, 4):
        w0, w1, w2, w3 = terms[start + e], terms[start + e + 1], terms[start + e + 2], terms[start + e + 3]
        for k in range(topics.shape[1]):
            tiles[row + k, e] = _cut(topics[w0, k])
            tiles[row + k, e + 1] = _cut(topics[w1, k])
            tiles[row + k, e + 2] = _cut(topics[w2, k])
            tiles[row + k, e + 3] = _cut(topics[w3, k])
    for k in range(topics.shape[1]):
        for e in range(blocked, n):
            tiles[row + k, e] = _cut(topics[terms[start + e], k])
        for e in range(n, tiles.shape[1]):
            tiles[row + k, e] = 0.0


@njit(**_OPTIONS)
def _moments(
    tiles: Matrix, row: int, r: Matrix, z0: Vector, z1: Vector, z2: Vector, z3: Vector
) -> None:  # pragma: no cover - compiled
    """z_j[e] = sum_k weights[k, e] r[j, k] for j = 0..3. Four topics a pass, to save loads and stores."""
    n_topics = r.shape[1]
    for e in range(tiles.shape[1]):
        z0[e] = 0.0
        z1[e] = 0.0
        z2[e] = 0.0
        z3[e] = 0.0
    blocked = n_topics - n_topics % 4
    for k in range(0, blocked, 4):
        r00, r01, r02, r03 = r[0, k], r[0, k + 1], r[0, k + 2], r[0, k + 3]
        r10, r11, r12, r13 = r[1, k], r[1, k + 1], r[1, k + 2], r[1, k + 3]
        r20, r21, r22, r23 = r[2, k], r[2, k + 1], r[2, k + 2], r[2, k + 3]
        r30, r31, r32, r33 = r[3, k], r[3, k + 1], r[3, k + 2], r[3, k + 3]
        for e in range(tiles.shape[1]):
            b0 = tiles[row + k, e]
            b1 = tiles[row + k + 1, e]
            b2 = tiles[row + k + 2, e]
            b3 = tiles[row + k + 3, e]
            z0[e] += r00 * b0 + r01 * b1 + r02 * b2 + r03 * b3
            z1[e] += r10 * b0 + r11 * b1 + r12 * b2 + r13 * b3
            z2[e] += r20 * b0 + r21 * b1 + r22 * b2 + r23 * b3
            z3[e] += r30 * b0 + r31 * b1 + r32 * b2 + r33 * b3
    for k in range(blocked, n_topics):
        r0, r1, r2, r3 = r[0, k], r[1, k], r[2, k], r[3, k]
        for e in range(tiles.shape[1]):
            b = tiles[row + k, e]
            z0[e] += r0 * b
            z1[e] += r1 * b
            z2[e] += r2 * b
            z3[e] += r3 * b


@njit(**_OPTIONS)
def _normalisers(tiles: Matrix, row: int, r: Matrix, z0: Vector) -> None:  # pragma: no cover - compiled
    """z0[e] = sum_k weights[k, e] r[0, k]: all that a document without response needs."""
    n_topics = r.shape[1]
    for e in range(tiles.shape[1]):
        z0[e] = 0.0
    blocked = n_topics - n_topics % 4
    for k in range(0, blocked, 4):
        r0, r1, r2, r3 = r[0, k], r[0, k + 1], r[0, k + 2], r[0, k + 3]
        for e in range(tiles.shape[1]):
            z0[e] += (
                r0 * tiles[row + k, e]
                + r1 * tiles[row + k + 1, e]
                + r2 * tiles[row + k + 2, e]
                + r3 * tiles[row + k + 3, e]
            )
    for k in range(blocked, n_topics):
        r0 = r[0, k]
        for e in range(tiles.shape[1]):
            z0[e] += r0 * tiles[row + k, e]


@njit(**_OPTIONS)
def _accumulate(
    tiles: Matrix, row: int, w0: Vector, w1: Vector, w2: Vector, sums: Matrix
) -> None:  # pragma: no cover - compiled
    """sums[j, k] += sum_e weights[k, e] w_j[e] for j = 0..2."""
    for k in range(sums.shape[1]):
        s0 = 0.0
        s1 = 0.0
        s2 = 0.0
        for e in range(tiles.shape[1]):
            b = tiles[row + k, e]
            s0 += b * w0[e]
            s1 += b * w1[e]
            s2 += b * w2[e]
        sums[0, k] += s0
        sums[1, k] += s1
        sums[2, k] += s2


@njit(**_OPTIONS)
def _accumulate_plain(
    tiles: Matrix, row: int, w0: Vector, sums: Matrix
) -> None:  # pragma: no cover - compiled
    """sums[0, k] += sum_e weights[k, e] w0[e]."""
    for k in range(sums.shape[1]):
        s0 = 0.0
        for e in range(tiles.shape[1]):
            s0 += tiles[row + k, e] * w0[e]
        sums[0, k] += s0


@njit(**_OPTIONS)
def _set_base(
    h: Vector, eta: Vector, a: float, r: Matrix, x: Vector, bits: NDArray[np.uint64]
) -> float:  # pragma: no cover - compiled
    """r[j] = exp(h + a eta - max) eta^j for j = 0..3; returns the max."""
    n_topics = h.shape[0]
    top = -np.inf
    for k in range(n_topics):
        x[k] = h[k] + a * eta[k]
        top = max(top, x[k])
    exp_shifted(x, top, r[0], bits)
    for k in range(n_topics):
        r[1, k] = r[0, k] * eta[k]
        r[2, k] = r[1, k] * eta[k]
        r[3, k] = r[2, k] * eta[k]
    return top


@njit(**_OPTIONS)
def _flush(sums: Matrix, r: Matrix, assigned: Vector) -> None:  # pragma: no cover - compiled
    """assigned += r sums_0 + r eta sums_1 + r eta^2 sums_2, and clear the sums."""
    for k in range(assigned.shape[0]):
        assigned[k] += r[0, k] * sums[0, k] + r[1, k] * sums[1, k] + r[2, k] * sums[2, k]
        sums[0, k] = 0.0
        sums[1, k] = 0.0
        sums[2, k] = 0.0


@njit(**_OPTIONS)
def _single(
    topics: Matrix,
    term: int,
    a: float,
    a_base: float,
    top: float,
    r: Matrix,
    h: Vector,
    eta: Vector,
    reach: float,
    x: Vector,
    phi: Vector,
    bits: NDArray[np.uint64],
) -> tuple[float, float, float]:  # pragma: no cover - compiled
    """Normalised phi of one term at `a`, by itself: a longer series from the base, or exponentials.

    Returns (log Z, eta'phi, (eta*eta)'phi).
    """
    n_topics = h.shape[0]
    t = a - a_base
    z = 0.0
    if abs(t) * reach <= SERIES_LIMIT:
        for k in range(n_topics):
            u = t * eta[k]
            p = 1.0 / 720.0 + u * (1.0 / 5040.0 + u / 40320.0)
            p = 1.0 + u * (1.0 + u * (0.5 + u * (1.0 / 6.0 + u * (1.0 / 24.0 + u * (1.0 / 120.0 + u * p)))))
            phi[k] = r[0, k] * p * _cut(topics[term, k])
            z += phi[k]
    if z < SMALLEST_NORMALISER:
        # far from the base, or the term lives only in topics that are all but impossible at the base
        top = -np.inf
        for k in range(n_topics):
            x[k] = h[k] + a * eta[k]
            if topics[term, k] >= SMALLEST_WEIGHT:
                top = max(top, x[k])
        for k in range(n_topics):
            x[k] = min(x[k], top + 1.0)
        exp_shifted(x, top, phi, bits)
        z = 0.0
        for k in range(n_topics):
            phi[k] *= _cut(topics[term, k])
            z += phi[k]
    m = 0.0
    square = 0.0
    share = 1.0 / z
    for k in range(n_topics):
        p = phi[k] * share
        phi[k] = p
        m += p * eta[k]
        square += p * eta[k] * eta[k]
    return top + math.log(z), m, square


@njit(**_OPTIONS)
def _single_update(
    topics: Matrix,
    term: int,
    rest: float,
    coupling: float,
    m: float,
    a_base: float,
    top: float,
    r: Matrix,
    h: Vector,
    eta: Vector,
    reach: float,
    x: Vector,
    phi: Vector,
    bits: NDArray[np.uint64],
) -> tuple[float, float, float, float]:  # pragma: no cover - compiled
    """Update of one token, or of all tied occurrences of one term: solves m = eta'phi(rest + coupling m) from a guess.

    Newton, with bisection where it does not halve the gap; the right side falls in m (coupling <= 0), so the root is
    unique. A token is coupled to none. Returns (a, log Z, m, (eta*eta)'phi).
    """
    low, high = -reach, reach
    if not low <= m <= high:  # NaN too
        m = 0.0
    a = rest + coupling * m
    log_z, new, square = _single(topics, term, a, a_base, top, r, h, eta, reach, x, phi, bits)
    if coupling == 0.0:
        return a, log_z, new, square
    before = np.inf
    for _ in range(80):
        gap = new - m
        if gap > 0.0:
            low = m
        else:
            high = m
        if abs(gap) <= 1e-12 * reach or high - low <= 1e-14 * reach:
            break
        m += gap / (1.0 - coupling * max(square - new * new, 0.0))
        if not low < m < high or abs(gap) > 0.5 * before:
            m = 0.5 * (low + high)
        before = abs(gap)
        a = rest + coupling * m
        log_z, new, square = _single(topics, term, a, a_base, top, r, h, eta, reach, x, phi, bits)
    return a, log_z, new, square


# rows of the scratch matrix that carries the entries of a tile through the functions below
_KAPPA1, _KAPPA2, _KAPPA3, _C, _OLD, _T0, _T1, _T2, _M0, _M1, _M2, _CHANGE = range(12)
_T, _M, _SHARE0, _SHARE1, _SHARE2 = _T0, _M0, _M1, _M2, _T1


@njit(**_OPTIONS)
def _cumulants(n: int, z0: Vector, z1: Vector, z2: Vector, z3: Vector) -> None:  # pragma: no cover - compiled
    """Replace z1, z2, z3 by mean, variance and third central moment of eta under phi."""
    for i in range(n):
        inverse = 1.0 / z0[i]
        first = z1[i] * inverse
        second = z2[i] * inverse
        third = z3[i] * inverse
        z1[i] = first
        z2[i] = max(second - first * first, 0.0)
        z3[i] = third - first * (3.0 * second - 2.0 * first * first)


@njit(**_OPTIONS)
def _load(
    n: int, copies: Vector, old_m: Vector, kappa1: Vector, kappa2: Vector, kappa3: Vector, run: Matrix
) -> None:  # pragma: no cover - compiled
    """Bring entries into the scratch matrix; a loop each, or the compiler gives up on telling the arrays apart."""
    for i in range(n):
        run[_C, i] = copies[i]
    for i in range(n):
        run[_OLD, i] = old_m[i]
    for i in range(n):
        run[_KAPPA1, i] = kappa1[i]
    for i in range(n):
        run[_KAPPA2, i] = kappa2[i]
    for i in range(n):
        run[_KAPPA3, i] = kappa3[i]


@njit(**_OPTIONS)
def _lines(n: int, run: Matrix, slope: float, shift: float) -> None:  # pragma: no cover - compiled
    """The update of every entry as a quadratic in `change`, the movement of sum_n m_n since the start of the run.

    The exact update of c tied occurrences (a single token is c = 1) solves
    t = shift + slope (change - c old) + slope (c - 1) m(t), with m(t) = kappa_1 + t kappa_2 + t^2 kappa_3 / 2.
    Writes t = T0 + T1 change + T2 change^2, and c (m - old) = M0 + M1 change + M2 change^2.
    """
    for i in range(n):
        c = run[_C, i]
        old = run[_OLD, i]
        kappa1 = run[_KAPPA1, i]
        kappa2 = run[_KAPPA2, i]
        kappa3 = run[_KAPPA3, i]
        coupling = slope * (c - 1.0)
        gain = 1.0 / (1.0 - coupling * kappa2)
        line0 = gain * (shift - slope * c * old + coupling * kappa1)
        line1 = gain * slope
        bend = 0.5 * gain * coupling * kappa3
        t0 = line0 + bend * line0 * line0
        t1 = line1 * (1.0 + 2.0 * bend * line0)
        t2 = bend * line1 * line1
        variance = kappa2 + t0 * kappa3
        run[_T0, i] = t0
        run[_T1, i] = t1
        run[_T2, i] = t2
        run[_M0, i] = c * (kappa1 + t0 * (kappa2 + 0.5 * t0 * kappa3) - old)
        run[_M1, i] = c * t1 * variance
        run[_M2, i] = c * (t2 * variance + 0.5 * t1 * t1 * kappa3)


@njit(**_OPTIONS)
def _chain(n: int, run: Matrix) -> float:  # pragma: no cover - compiled
    """Coordinate ascent from state to state: two multiply-adds each. Returns the whole change."""
    change = 0.0
    for i in range(n):
        run[_CHANGE, i] = change
        change = (change + run[_M0, i]) + change * (run[_M1, i] + change * run[_M2, i])
    return change


@njit(**_OPTIONS)
def _taylor_serves(t: float, square: float, reach: float) -> bool:  # pragma: no cover - compiled
    """Whether the short series is good enough at `t` for an entry with E[eta^2] = square; not for NaN."""
    size = abs(t)
    return size * reach <= SERIES_LIMIT and size * size * size * reach * square <= TAYLOR_LIMIT


@njit(**_OPTIONS)
def _taylor_steps(n: int, run: Matrix, z0: Vector, reach: float) -> int:  # pragma: no cover - compiled
    """Write t of every entry; returns how many come before the first whose t is too large or normaliser too small."""
    worst = 0.0
    largest = 0.0
    smallest = 1.0
    for i in range(n):
        change = run[_CHANGE, i]
        t = run[_T0, i] + change * (run[_T1, i] + change * run[_T2, i])
        run[_T, i] = t
        square = run[_KAPPA2, i] + run[_KAPPA1, i] * run[_KAPPA1, i]
        worst = max(worst, abs(t) * t * t * square)
        largest = max(largest, abs(t))
        smallest = min(smallest, z0[i])
    if worst * reach <= TAYLOR_LIMIT and largest * reach <= SERIES_LIMIT and smallest >= SMALLEST_NORMALISER:
        return n
    for i in range(n):
        square = run[_KAPPA2, i] + run[_KAPPA1, i] * run[_KAPPA1, i]
        if not _taylor_serves(run[_T, i], square, reach) or z0[i] < SMALLEST_NORMALISER:
            return i
    return n


@njit(**_OPTIONS)
def _taylor_updates(
    n: int, run: Matrix, a_base: float, b: float
) -> tuple[float, float, float]:  # pragma: no cover - compiled
    """Write m and the weights c (1, t, t^2 / 2) Z(0) / Z(t) of every state.

    Returns sum c (log Z(t) - log Z(0) - a m - b (eta*eta)'phi), sum c m, sum c Var(eta).
    """
    bound = 0.0
    m_total = 0.0
    spread = 0.0
    for i in range(n):
        c = run[_C, i]
        t = run[_T, i]
        kappa1 = run[_KAPPA1, i]
        kappa2 = run[_KAPPA2, i]
        kappa3 = run[_KAPPA3, i]
        m = kappa1 + t * (kappa2 + 0.5 * t * kappa3)
        variance = kappa2 + t * kappa3
        u = t * (kappa1 + t * (0.5 * kappa2 + t * kappa3 / 6.0))
        share = c * (1.0 - u * (1.0 - u * (0.5 - u / 6.0)))
        run[_M, i] = m
        run[_SHARE0, i] = share
        run[_SHARE1, i] = share * t
        run[_SHARE2, i] = share * 0.5 * t * t
        bound += c * (u - (a_base + t) * m - b * (variance + m * m))
        m_total += c * m
        spread += c * variance
    return bound, m_total, spread


@njit(**_OPTIONS)
def _store(
    n: int,
    run: Matrix,
    a_base: float,
    w0: Vector,
    w1: Vector,
    w2: Vector,
    tokens: Vector,
    state_m: Vector,
    state_a: Vector,
) -> None:  # pragma: no cover - compiled
    """Hand out what the run has found; a loop each, as in `_load`."""
    for i in range(n):
        w0[i] = run[_SHARE0, i]
    for i in range(n):
        w1[i] = run[_SHARE1, i]
    for i in range(n):
        w2[i] = run[_SHARE2, i]
    for i in range(n):
        tokens[i] = run[_C, i]
    for i in range(n):
        state_m[i] = run[_M, i]
    for i in range(n):
        state_a[i] = a_base + run[_T, i]


@njit(**_OPTIONS)
def _divide_by_normalisers(
    n: int, width: int, z0: Vector, w0: Vector, w1: Vector, w2: Vector
) -> None:  # pragma: no cover - compiled
    """w_j /= z0, and zeros in the padding."""
    for e in range(n):
        inverse = 1.0 / z0[e]
        w0[e] *= inverse
        w1[e] *= inverse
        w2[e] *= inverse
    for e in range(n, width):
        w0[e] = 0.0
        w1[e] = 0.0
        w2[e] = 0.0


@njit(**_OPTIONS)
def _sum_of_logs(
    n: int, z0: Vector, tokens: Vector, top: float, scratch: Vector, bits: NDArray[np.uint64]
) -> float:  # pragma: no cover - compiled
    """sum_e tokens[e] (top + log z0[e]); z0 is overwritten."""
    log(n, z0, scratch, bits)
    total = 0.0
    for e in range(n):
        total += tokens[e] * (top + scratch[e])
    return total


@njit(**_OPTIONS)
def _write_phi(
    tiles: Matrix,
    row: int,
    r: Matrix,
    eta: Vector,
    t: Vector,
    phi: Matrix,
    z: Vector,
    first: Vector,
    second: Vector,
) -> None:  # pragma: no cover - compiled
    """Unnormalised phi of a tile, shape (K, width), at every entry's t, with the sums of phi, phi eta and phi eta^2."""
    width = tiles.shape[1]
    for e in range(width):
        z[e] = 0.0
        first[e] = 0.0
        second[e] = 0.0
    for k in range(eta.shape[0]):
        rk = r[0, k]
        eta_k = eta[k]
        for e in range(width):
            u = t[e] * eta_k
            p = rk * tiles[row + k, e] * (1.0 + u * (1.0 + u * (0.5 + u / 6.0)))
            phi[k, e] = p
            z[e] += p
            first[e] += p * eta_k
            second[e] += p * eta_k * eta_k


@njit(**_OPTIONS)
def _write_out_factors(
    n: int,
    copies: Vector,
    z: Vector,
    first: Vector,
    second: Vector,
    factor: Vector,
    root: Vector,
    root_m: Vector,
) -> tuple[float, float]:  # pragma: no cover - compiled
    """From the sums of `_write_phi`: factor = sqrt(c) / z, root = sqrt(c), root_m = sqrt(c) m.

    Returns sum c m and sum c Var(eta).
    """
    m_total = 0.0
    spread = 0.0
    for e in range(n):
        c = copies[e]
        mean = first[e] / z[e]
        square_root = math.sqrt(c)
        factor[e] = square_root / z[e]
        root[e] = square_root
        root_m[e] = square_root * mean
        m_total += c * mean
        spread += c * max(second[e] / z[e] - mean * mean, 0.0)
    return m_total, spread


@njit(**_OPTIONS)
def _scale_phi(
    width: int,
    factor: Vector,
    root: Vector,
    root_m: Vector,
    phi: Matrix,
    assigned: Vector,
    assigned_m: Vector,
) -> None:  # pragma: no cover - compiled
    """phi[:, e] *= factor[e]; assigned += phi root; assigned_m += phi root_m."""
    for k in range(assigned.shape[0]):
        total = 0.0
        total_m = 0.0
        for e in range(width):
            p = phi[k, e] * factor[e]
            phi[k, e] = p
            total += p * root[e]
            total_m += p * root_m[e]
        assigned[k] += total
        assigned_m[k] += total_m


@njit(**_OPTIONS)
def _add_expected_counts(
    terms: NDArray[np.int32], start: int, stop: int, root: Vector, phi: Matrix, topic_word: Matrix
) -> None:  # pragma: no cover - compiled
    """topic_word[term of e] += root[e] phi[:, e]."""
    n = stop - start
    blocked = n - n % 4
    for e in range(0, blocked, 4):
        w0, w1, w2, w3 = terms[start + e], terms[start + e + 1], terms[start + e + 2], terms[start + e + 3]
        r0, r1, r2, r3 = root[e], root[e + 1], root[e + 2], root[e + 3]
        for k in range(topic_word.shape[1]):
            topic_word[w0, k] += r0 * phi[k, e]
            topic_word[w1, k] += r1 * phi[k, e + 1]
            topic_word[w2, k] += r2 * phi[k, e + 2]
            topic_word[w3, k] += r3 * phi[k, e + 3]
    for e in range(blocked, n):
        w0 = terms[start + e]
        for k in range(topic_word.shape[1]):
            topic_word[w0, k] += root[e] * phi[k, e]


@njit(**_OPTIONS)
def _add_gram(width: int, phi: Matrix, n_topics: int, gram: Matrix) -> None:  # pragma: no cover - compiled
    """Lower triangle of gram += phi phi', two rows by four columns at a time; what lies right of it is never read."""
    for i in range(0, n_topics, 2):
        for j in range(0, i + 1, 4):
            s00 = s01 = s02 = s03 = 0.0
            s10 = s11 = s12 = s13 = 0.0
            for e in range(width):
                p0 = phi[i, e]
                p1 = phi[i + 1, e]
                q0 = phi[j, e]
                q1 = phi[j + 1, e]
                q2 = phi[j + 2, e]
                q3 = phi[j + 3, e]
                s00 += p0 * q0
                s01 += p0 * q1
                s02 += p0 * q2
                s03 += p0 * q3
                s10 += p1 * q0
                s11 += p1 * q1
                s12 += p1 * q2
                s13 += p1 * q3
            gram[i, j] += s00
            gram[i, j + 1] += s01
            gram[i, j + 2] += s02
            gram[i, j + 3] += s03
            gram[i + 1, j] += s10
            gram[i + 1, j + 1] += s11
            gram[i + 1, j + 2] += s12
            gram[i + 1, j + 3] += s13


@njit(**_OPTIONS)
def _add_response_statistics(
    gram: Matrix,
    assigned: Vector,
    assigned_m: Vector,
    eta: Vector,
    length: float,
    first: float,
    curvature: float,
    score: Vector,
    information: Matrix,
) -> None:  # pragma: no cover - compiled
    """Add one document's score l1 E[zbar] + l2 Cov[zbar] eta and information -l2 E[zbar zbar'] (lower triangle).

    length^2 E[zbar zbar'] = s s' - gram + diag(s) with s = assigned, the sum of the phi_n; gram eta = assigned_m.
    """
    scale = -curvature / (length * length)
    for i in range(assigned.shape[0]):
        s_i = assigned[i]
        score[i] += first * s_i / length - scale * (s_i * eta[i] - assigned_m[i])
        for j in range(i + 1):
            information[i, j] += scale * (s_i * assigned[j] - gram[i, j])
        information[i, i] += scale * s_i


_READ_ONLY_1D = {t: types.Array(t, 1, "C", readonly=True) for t in (float64, int32, int64)}
_SIGNATURE = types.void(
    _READ_ONLY_1D[int64],  # indptr
    _READ_ONLY_1D[int32],  # terms
    _READ_ONLY_1D[int32],  # counts
    _READ_ONLY_1D[float64],  # y
    types.Array(float64, 2, "C", readonly=True),  # topics
    _READ_ONLY_1D[float64],  # alpha
    _READ_ONLY_1D[float64],  # eta
    float64,  # delta
    float64,  # rho
    types.boolean,  # tied
    int64,  # max_sweeps
    float64,  # sweep_tol
    *(types.FunctionType(SCALAR_SIGNATURE),) * 5,  # l, l1, l2, l3, dispersion statistic
    float64[:, ::1],  # topic_word
    float64[::1],  # score
    float64[:, ::1],  # information
    float64[::1],  # scalars
    float64[:, ::1],  # gamma
    float64[:, ::1],  # per_document
)


@njit(_SIGNATURE, **_OPTIONS)
def e_step_block(
    indptr,
    terms,
    counts,
    y,
    topics,
    alpha,
    eta_given,
    delta,
    rho,
    tied,
    max_sweeps,
    sweep_tol,
    l,
    l1,
    l2,
    l3,
    dispersion_statistic,
    topic_word,
    score,
    information,
    scalars,
    gamma_out,
    per_document,
):  # pragma: no cover - compiled
    """E-step of every document of a block, added to the output arrays in document order.

    Parameters
    ----------
    indptr, terms, counts : ndarray of int64, int32, int32
        Documents as compressed sparse rows.
    y : ndarray of float64, shape (D,)
        Standardised responses, NaN where missing.
    topics : ndarray of float64, shape (V, K)
        Topic weights of every term.
    alpha, eta_given : ndarray of float64, shape (K,)
    delta, rho : float
    tied : bool
        True: the occurrences of a term share phi (granularity "term").
    max_sweeps, sweep_tol
        See :class:`~dslda.variational.parameters.FitSpec`.
    l, l1, l2, l3, dispersion_statistic : compiled functions of (float, float, float)
        See :class:`~dslda.families.base.Family`.
    topic_word : ndarray of float64, shape (V, K) or (0, K)
        Expected counts are added; with no rows the block is only inferred, and no statistic is added but `scalars`.
    score, information : ndarray of float64, shapes (K,) and (K, K)
        Added to; the lower triangle of `information` only.
    scalars : ndarray of float64, shape (7,)
        Added to, in the order of `SCALARS`.
    gamma_out : ndarray of float64, shape (D, K) or (0, K)
        Written where it has rows.
    per_document : ndarray of float64, shape (D, 6) or (0, 6)
        Written where it has rows: m, v, ELBO, sweeps, known tokens, converged.
    """
    n_documents = indptr.shape[0] - 1
    n_topics = topics.shape[1]
    # entries of a document: its terms, or its single tokens where they are not tied
    longest = int64(0)
    for d in range(n_documents):
        size = indptr[d + 1] - indptr[d]
        if not tied and not math.isnan(y[d]):
            size = int64(0)
            for i in range(indptr[d], indptr[d + 1]):
                size += counts[i]
        longest = max(longest, size)
    # a document's padded tiles, or one tile of a document too long to be kept gathered
    buffer = _vector(
        n_topics * min(longest + longest // _LANES + 2 * _WIDEST, _RESIDENT_DOUBLES // n_topics + 2 * _WIDEST)
    )
    known = np.empty(longest, dtype=np.int32)
    copies = _vector(longest)
    state_a = _vector(longest)
    state_m = _vector(longest)
    z0, z1, z2, z3 = _vector(_WIDEST), _vector(_WIDEST), _vector(_WIDEST), _vector(_WIDEST)
    w0, w1, w2, tokens = _vector(_WIDEST), _vector(_WIDEST), _vector(_WIDEST), _vector(_WIDEST)
    scratch = _vector(_WIDEST)
    run = _matrix(12, _WIDEST)
    tile_bits = _vector(_WIDEST).view(np.uint64)
    eta = _vector(n_topics)
    h = _vector(n_topics)
    x = _vector(n_topics)
    phi = _vector(n_topics)
    elog = _vector(n_topics)
    gamma = _vector(n_topics)
    assigned = _vector(n_topics)
    r = _matrix(4, n_topics)
    sums = _matrix(3, n_topics)
    work = _matrix(2, n_topics)
    bits = _vector(n_topics).view(np.uint64)
    padded = (n_topics + 3) // 4 * 4
    # rows an odd number of cache lines apart: a column of it does not fall into a few cache sets
    phi_tile = _matrix(padded, _WIDEST + 8)
    t_tile = _vector(_WIDEST)
    gram = _matrix(padded, padded)
    assigned_m = _vector(n_topics)
    learn = topic_word.shape[0] > 0

    middle = 0.0
    for k in range(n_topics):
        middle += eta_given[k] / n_topics
    reach = 0.0
    eta_square_mean = 0.0
    alpha_sum = 0.0
    log_beta_alpha = 0.0
    for k in range(n_topics):
        eta[k] = eta_given[k] - middle
    for k in range(n_topics):
        reach = max(reach, abs(eta[k]))
        eta_square_mean += eta[k] * eta[k] / n_topics
        alpha_sum += alpha[k]
        log_beta_alpha += math.lgamma(alpha[k])
    typical = math.sqrt(eta_square_mean)
    log_beta_alpha -= math.lgamma(alpha_sum)

    for d in range(n_documents):
        labelled = not math.isnan(y[d])
        # terms without mass in any topic are unknown to the model
        n = 0
        n_tokens = int64(0)
        for i in range(indptr[d], indptr[d + 1]):
            if not _is_known(topics, terms[i]):
                continue
            n_tokens += counts[i]
            repeats = 1 if tied or not labelled else counts[i]
            for _ in range(repeats):
                known[n] = terms[i]
                copies[n] = counts[i] / repeats
                n += 1
        scalars[6] += n_tokens
        if n == 0:
            # q(theta) is the prior; the response of a document without words teaches nothing about topics
            scalars[3] += 1
            m = 0.0
            for k in range(n_topics):
                m += alpha[k] / alpha_sum * eta_given[k]
            if gamma_out.shape[0] > 0:
                for k in range(n_topics):
                    gamma_out[d, k] = alpha[k]
            if per_document.shape[0] > 0:
                per_document[d, 0] = m
                per_document[d, 1] = 0.0
                per_document[d, 2] = 0.0
                per_document[d, 3] = 0.0
                per_document[d, 4] = 0.0
                per_document[d, 5] = 1.0
            continue

        length = float(n_tokens)
        width = _tile_width(n, n_topics)
        resident = n_topics * n <= _RESIDENT_DOUBLES
        n_rows = n_topics * ((n + width - 1) // width) if resident else n_topics
        tiles = buffer[: n_rows * width].reshape((n_rows, width))
        if resident:
            for start in range(0, n, width):
                _gather(topics, known, start, min(start + width, n), tiles, n_topics * (start // width))

        # cold start: a pure function of the document and the parameters
        for k in range(n_topics):
            gamma[k] = alpha[k] + length / n_topics
        for e in range(n):
            state_m[e] = 0.0
        log_gamma_total = math.lgamma(alpha_sum + length)
        log_gamma_sum_and_digamma(gamma, elog, work, bits)
        m_sum = 0.0
        v = eta_square_mean / length
        elbo = -np.inf
        converged = False
        sweeps = 0
        b = 0.0
        a_base = 0.0
        top = 0.0

        while sweeps < max_sweeps and not converged:
            sweeps += 1
            slope = 0.0
            a_start = 0.0
            b = 0.0
            if labelled:
                omega = middle + m_sum / length
                curvature = l2(y[d], omega, delta)
                a_start = rho * (l1(y[d], omega, delta) + 0.5 * l3(y[d], omega, delta) * v) / length
                slope = rho * curvature / (length * length)
                b = 0.5 * slope
            # E[log theta] up to digamma(sum gamma), which is the same for all topics
            for k in range(n_topics):
                h[k] = elog[k] + b * eta[k] * eta[k]
                assigned[k] = 0.0
            m_sum_start = m_sum
            m_total = 0.0
            spread = 0.0
            bound = 0.0
            based = False
            top = 0.0

            for start in range(0, n, width):
                stop = min(start + width, n)
                n_tile = stop - start
                row = n_topics * (start // width) if resident else 0
                if not resident:
                    _gather(topics, known, start, stop, tiles, 0)
                a_middle = a_start + slope * (m_sum - m_sum_start - m_sum / length)
                if not based or abs(a_middle - a_base) * typical > _REBASE_LIMIT:
                    if based:
                        _flush(sums, r, assigned)
                    a_base = a_middle
                    top = _set_base(h, eta, a_base, r, x, bits)
                    based = True

                if not labelled:
                    _normalisers(tiles, row, r, z0)
                    for e in range(n_tile):
                        tokens[e] = copies[start + e]
                    for e in range(n_tile):
                        w0[e] = tokens[e] / z0[e]
                    for e in range(n_tile):
                        if z0[e] < SMALLEST_NORMALISER:
                            log_z, _, _ = _single(
                                topics, known[start + e], 0.0, 0.0, top, r, h, eta, reach, x, phi, bits
                            )
                            bound += tokens[e] * log_z
                            for k in range(n_topics):
                                assigned[k] += tokens[e] * phi[k]
                            w0[e] = 0.0
                            tokens[e] = 0.0
                    for e in range(n_tile, width):
                        w0[e] = 0.0
                    _accumulate_plain(tiles, row, w0, sums)
                    bound += _sum_of_logs(n_tile, z0, tokens, top, scratch, tile_bits)
                    continue

                _moments(tiles, row, r, z0, z1, z2, z3)
                _cumulants(n_tile, z0, z1, z2, z3)
                first = 0
                longest_run = n_tile
                while first < n_tile:
                    # the rest of the tile is updated at once up to the first entry whose t is too large for the Taylor
                    # series; that one is updated by itself
                    n_run = min(n_tile - first, longest_run)
                    at = start + first
                    _load(
                        n_run,
                        copies[at:stop],
                        state_m[at:stop],
                        z1[first:n_tile],
                        z2[first:n_tile],
                        z3[first:n_tile],
                        run,
                    )
                    _lines(n_run, run, slope, a_start - a_base + slope * (m_sum - m_sum_start))
                    change = _chain(n_run, run)
                    n_taylor = _taylor_steps(n_run, run, z0[first:n_tile], reach)
                    if n_taylor < n_run:
                        change = run[_CHANGE, n_taylor]
                    part = _taylor_updates(n_taylor, run, a_base, b)
                    _store(
                        n_taylor,
                        run,
                        a_base,
                        w0[first:n_tile],
                        w1[first:n_tile],
                        w2[first:n_tile],
                        tokens[first:n_tile],
                        state_m[at:stop],
                        state_a[at:stop],
                    )
                    bound += part[0]
                    m_total += part[1]
                    spread += part[2]
                    m_sum += change
                    first += n_taylor
                    if n_taylor == n_run:
                        longest_run *= 4
                        continue
                    longest_run = _SHORT_RUN
                    at = start + first
                    c = copies[at]
                    old = state_m[at]
                    guess = run[_T, n_taylor]
                    guess = z1[first] + guess * (z2[first] + 0.5 * guess * z3[first])
                    a, log_z, new, second = _single_update(
                        topics,
                        known[at],
                        a_start + slope * (m_sum - m_sum_start - c * old),
                        slope * (c - 1.0),
                        guess,
                        a_base,
                        top,
                        r,
                        h,
                        eta,
                        reach,
                        x,
                        phi,
                        bits,
                    )
                    for k in range(n_topics):
                        assigned[k] += c * phi[k]
                    bound += c * (log_z - a * new - b * second)
                    m_total += c * new
                    spread += c * (second - new * new)
                    m_sum += c * (new - old)
                    state_m[at] = new
                    state_a[at] = a
                    w0[first] = 0.0
                    w1[first] = 0.0
                    w2[first] = 0.0
                    tokens[first] = 0.0
                    first += 1
                _divide_by_normalisers(n_tile, width, z0, w0, w1, w2)
                _accumulate(tiles, row, w0, w1, w2, sums)
                bound += _sum_of_logs(n_tile, z0, tokens, top, scratch, tile_bits)

            _flush(sums, r, assigned)
            m_sum = m_total
            # words, assignments and entropy of q(z); with gamma = alpha + assigned the rest is a ratio of Beta functions
            for k in range(n_topics):
                bound -= assigned[k] * elog[k]
            for k in range(n_topics):
                gamma[k] = alpha[k] + assigned[k]
            bound += log_gamma_sum_and_digamma(gamma, elog, work, bits) - log_gamma_total - log_beta_alpha
            if labelled:
                v = max(spread, 0.0) / (length * length)
                omega = middle + m_sum / length
                bound += rho * (l(y[d], omega, delta) + 0.5 * l2(y[d], omega, delta) * v)
            converged = abs(bound - elbo) <= sweep_tol * abs(bound)
            elbo = bound

        # write out phi of the last sweep, once: sqrt(c) phi, so that its square is what the second moments need
        for k in range(n_topics):
            assigned[k] = 0.0
            assigned_m[k] = 0.0
        second_moments = labelled and learn
        if second_moments:
            for i in range(gram.shape[0]):
                for j in range(gram.shape[0]):
                    gram[i, j] = 0.0
        m_total = 0.0
        spread = 0.0
        for start in range(0, n, width):
            stop = min(start + width, n)
            row = n_topics * (start // width) if resident else 0
            if not resident:
                _gather(topics, known, start, stop, tiles, 0)
            for e in range(stop - start):
                t_tile[e] = state_a[start + e] - a_base if labelled else 0.0
            for e in range(stop - start, width):
                t_tile[e] = 0.0
            _write_phi(tiles, row, r, eta, t_tile, phi_tile, z0, z1, z2)
            for e in range(stop - start):
                if z0[e] < SMALLEST_NORMALISER or not _taylor_serves(t_tile[e], z2[e] / z0[e], reach):
                    _, z1[e], z2[e] = _single(
                        topics,
                        known[start + e],
                        state_a[start + e],
                        a_base,
                        0.0,
                        r,
                        h,
                        eta,
                        reach,
                        x,
                        phi,
                        bits,
                    )
                    z0[e] = 1.0
                    for k in range(n_topics):
                        phi_tile[k, e] = phi[k]
            part_m, part_spread = _write_out_factors(stop - start, copies[start:stop], z0, z1, z2, w0, w1, w2)
            m_total += part_m
            spread += part_spread
            for e in range(stop - start, width):
                w0[e] = 0.0
                w1[e] = 0.0
                w2[e] = 0.0
            _scale_phi(width, w0, w1, w2, phi_tile, assigned, assigned_m)
            if learn:
                _add_expected_counts(known, start, stop, w1, phi_tile, topic_word)
            if second_moments:
                _add_gram(width, phi_tile, n_topics, gram)

        omega = middle + m_total / length
        v = spread / (length * length)
        if second_moments:
            first_l = l1(y[d], omega, delta) + 0.5 * l3(y[d], omega, delta) * v
            curvature = l2(y[d], omega, delta)
            _add_response_statistics(
                gram, assigned, assigned_m, eta, length, first_l, curvature, score, information
            )
            scalars[0] += dispersion_statistic(y[d], omega, v)
            scalars[2] += 1
        scalars[1] += elbo
        scalars[4] += 0.0 if converged else 1.0
        scalars[5] += sweeps
        if gamma_out.shape[0] > 0:
            for k in range(n_topics):
                gamma_out[d, k] = alpha[k] + assigned[k]
        if per_document.shape[0] > 0:
            per_document[d, 0] = omega
            per_document[d, 1] = v
            per_document[d, 2] = elbo
            per_document[d, 3] = sweeps
            per_document[d, 4] = length
            per_document[d, 5] = 1.0 if converged else 0.0
