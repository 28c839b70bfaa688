"""Predict with a dslda model, using only zarr and numpy: docs/formats.md as a program, to read or to translate.

    python read_model.py stars.model '{"dress": 2, "lovely": 1}'
    python read_model.py cosponsors.model '{"health": 3}' '{"party": "D", "days": 30}'

The first object has the words of a document with their counts, as the model's `text_settings` make them, or the numbers of
its terms where these have no names; the second its covariates, where the model has any. Responses with an identity, log or
logit link.
"""

import hashlib
import itertools
import json
import math
import sys

import numpy as np
import zarr

IDENTITY = ("gaussian", "student_t")
LOG = ("poisson", "negative_binomial", "gamma", "inverse_gaussian")
LOGIT = ("binomial", "beta")
FIRST_VERSIONS = {"remainder_": "2", "start_": "3", "level_corrections": "4"}


def read_model(path):
    """The manifest and the arrays of a model; refuses those that do not agree with their checksums."""
    group = zarr.open_group(path, mode="r")
    manifest = dict(group.attrs)
    version = manifest.get("encoding-version")
    if manifest.get("encoding-type") != "dslda-model" or version not in ("1", "2", "3", "4"):
        raise ValueError(f"{path} is not a model of versions 1 to 4")
    rest = {name: value for name, value in manifest.items() if name != "manifest_sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if hashlib.sha256(text.encode()).hexdigest() != manifest["manifest_sha256"]:
        raise ValueError(f"{path}: the manifest was changed")
    for part, first in FIRST_VERSIONS.items():
        if version < first and any(part in name for name in manifest["arrays"]):
            raise ValueError(f"{path}: models of version {version} have no {part}")
    arrays = {}
    for name, said in manifest["arrays"].items():
        array = np.ascontiguousarray(group[name][...])
        if list(array.shape) != said["shape"] or checksum(array) != said["checksum"]:
            raise ValueError(f"{path}: the array {name} was changed")
        arrays[name] = array
    return manifest, arrays


def checksum(array):
    """The first 16 digits of the SHA-256 of the values, little-endian, with one kind of NaN."""
    array = array.astype(array.dtype.newbyteorder("<"))
    if array.dtype.kind == "f":
        array[np.isnan(array)] = np.nan
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]


def vocabulary(arrays):
    """The number of each term; terms without names have their number for one, counted from 0."""
    if "vocabulary" not in arrays:
        return {str(t): t for t in range(arrays["topics"].shape[1])}
    data, offsets = arrays["vocabulary"].tobytes(), arrays["vocabulary_offsets"]
    return {data[a:b].decode(): t for t, (a, b) in enumerate(itertools.pairwise(offsets))}


def digamma(x):
    """Derivative of log Gamma for x > 0: up to 10 by its recurrence, from there by its asymptotic series."""
    x = np.array(x, dtype=float)
    value = np.zeros_like(x)
    while (small := x < 10.0).any():
        value[small] -= 1.0 / x[small]
        x[small] += 1.0
    s = 1.0 / (x * x)
    series = s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132 - s * 691 / 32760)))))
    return value + np.log(x) - 0.5 / x - series


def word_weights(manifest, arrays):
    """Weight of each topic for each word, shape (K, V): the topics, or if they are distributions, exp(E[log topic])."""
    topics = arrays["topics"]
    if manifest["settings"].get("topic_estimation", "map") == "map":
        return topics
    concentration = arrays["concentration"][:, np.newaxis]
    known = topics > 0.0
    shape = np.where(known, concentration * topics, 1.0)
    # not below 1e-100, so that no word of a document is impossible in all topics
    return np.where(known, np.maximum(np.exp(digamma(shape) - digamma(concentration)), 1e-100), 0.0)


def assignments(weights, alpha, counts, tolerance=1e-12, most=100_000):
    """The share of each topic in each term, shape (n, K), at the fixed point of the E-step."""
    gamma = alpha + counts.sum() / len(alpha)
    for _ in range(most):
        phi = weights * np.exp(digamma(gamma) - digamma(gamma).max())
        phi /= phi.sum(axis=1, keepdims=True)
        before, gamma = gamma, alpha + counts @ phi
        if np.abs(gamma - before).max() <= tolerance * counts.sum():
            break
    return phi, gamma


def covariate_part(manifest, arrays, covariates):
    """Sum that covariates and exposure add to the linear predictor."""
    design, added = manifest["design"], 0.0
    for column, zeta in zip(design["covariates"], arrays.get("zeta", ()), strict=True):
        if column["name"] not in covariates:
            raise ValueError(f"the model needs the covariate {column['name']!r}")
        value = covariates[column["name"]]
        if column["level"] is not None:
            value = float(value == manifest["levels"][column["name"]][column["level"]])
        added += zeta * (value - column["center"]) / column["scale"]
    if design["exposure"] is not None:
        added += math.log(covariates.get(design["exposure"], 1.0))
    return added


WEIGHTINGS = {"raw": lambda c: c, "sqrt": np.sqrt, "log": lambda c: 1.0 + np.log(c), "binary": np.ones_like}


def extrapolated(gamma, alpha, earlier, moves):
    """Where many more sweeps would lead from the end of two, if their moves shrank alike: a step of SQUAREM."""
    bend = moves - earlier
    squares, bends = earlier @ earlier, bend @ bend
    if squares <= bends:
        return gamma
    a = min(math.sqrt(squares / bends), 8.0) if bends > 0.0 else 8.0
    return np.maximum(gamma - moves - earlier + 2.0 * a * earlier + a * a * bend, alpha)


def words_alone(manifest, arrays, topics, terms, counts):
    """Topic proportions of conditional training, with what they and single words predict."""
    eta, alpha, weighting = arrays["eta"], arrays["alpha"], manifest["weighting"]
    weights = weighting["scale"] * WEIGHTINGS[weighting["name"]](counts)
    n = weights.sum()
    gamma, moves, most = alpha + n / len(alpha), None, manifest["settings"]["max_sweeps"]
    for sweep in range(most):
        phi = topics[:, terms].T * np.exp(digamma(gamma))
        phi /= phi.sum(axis=1, keepdims=True)
        earlier, moves = moves, alpha + weights @ phi - gamma
        gamma = gamma + moves
        if np.abs(moves).sum() < 4e-3 * n:
            break
        if sweep % 2 == 1 and sweep + 1 < most:
            gamma = extrapolated(gamma, alpha, earlier, moves)
    shares = (gamma - alpha) / n
    mean = shares @ eta
    if "remainder_words" in arrays:
        normalised = 1.0 + np.log(counts)
        normalised /= math.sqrt(normalised @ normalised)
        mean += normalised @ arrays["remainder_words"][terms] - shares @ arrays["remainder_expected"]
    return gamma, mean


def expected(manifest, arrays, topics, terms, counts, added):
    """Topic proportions of a document, and its mean response on the scale of the fit."""
    family, eta, alpha = manifest["family"], arrays["eta"], arrays["alpha"]
    if not terms:  # the base rate
        gamma = alpha
        base = arrays["base"][0] if "base" in arrays else eta @ alpha / alpha.sum()
        mean, variance, log_mean = base + added, 0.0, base + added
    elif manifest["settings"].get("objective") == "conditional":
        gamma, mean = words_alone(manifest, arrays, topics, terms, counts)
        mean, variance, log_mean = mean + added, 0.0, mean + added
    else:
        phi, gamma = assignments(topics[:, terms].T, alpha, counts)
        n = counts.sum()
        means = phi @ eta
        mean = counts @ means / n + added
        variance = counts @ (phi @ eta**2 - means**2) / n**2
        top = eta.max() / n
        log_mean = counts @ (top + np.log(phi @ np.exp(eta / n - top))) + added

    if family in IDENTITY:
        return gamma, mean
    if family in LOG:
        return gamma, math.exp(log_mean)
    # the mean of a logit whose argument is normal, by quadrature
    nodes, shares = np.polynomial.hermite_e.hermegauss(15)
    logits = mean + nodes * math.sqrt(max(variance, 0.0))
    if terms and "level_corrections" in arrays:  # of conditional training, which has no variance
        a, b, d = arrays["level_corrections"][0]
        x = np.clip(logits, -20.0, 20.0)
        logits = logits + a - b * np.logaddexp(0.0, -x) + d * np.logaddexp(0.0, x)
    return gamma, shares @ (1.0 / (1.0 + np.exp(-logits))) / shares.sum()


def predict(path, words, covariates=None):
    """Prediction and topic proportions of a document, and the user's names of the topics, None for those without.

    Parameters: the path of the model, a dict of counts by word, or by the number of a term as text where terms have no
    names, and a dict of covariates by name.
    """
    covariates = covariates or {}
    manifest, stored = read_model(path)
    family, design = manifest["family"], manifest["design"]
    if family not in (*IDENTITY, *LOG, *LOGIT):
        raise ValueError(f"this program knows {', '.join((*IDENTITY, *LOG, *LOGIT))}, got {family}")
    number = vocabulary(stored)
    starts = ["", *(f"start_{i + 2}_" for i in range(manifest.get("n_other_starts", 0)))]
    answers = []
    for start in starts:
        arrays = {name.removeprefix(start): a for name, a in stored.items() if name.startswith(start)}
        topics = word_weights(manifest, arrays)
        terms = [t for t in map(number.get, words) if t is not None and topics[:, t].any()]
        counts = np.array([words[word] for word in words if number.get(word) in terms], dtype=float)
        added = covariate_part(manifest, arrays, covariates)
        answers.append(expected(manifest, arrays, topics, terms, counts, added))
    gamma = answers[0][0]
    scaled = np.mean([mean for _, mean in answers])
    prediction = design["scaling"]["center"] + design["scaling"]["scale"] * scaled
    if design["trials"]:
        prediction *= covariates.get(design["auxiliary"], 1.0)
    labels = manifest.get("labels") or [None] * len(gamma)
    return {"prediction": float(prediction), "topics": (gamma / gamma.sum()).tolist(), "labels": labels}


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    try:
        print(json.dumps(predict(sys.argv[1], *map(json.loads, sys.argv[2:]))))
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"{sys.argv[1]}: {error}")
