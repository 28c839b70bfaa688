"""Predict with a dslda model, using only zarr and numpy: docs/formats.md as a program, to read or to translate.

    python read_model.py stars.model '{"dress": 2, "lovely": 1}'
    python read_model.py cosponsors.model '{"health": 3}' '{"party": "D", "days": 30}'

The first object has the words of a document with their counts, as the model's `text_settings` make them; the second its
covariates, where the model has any. Responses with an identity, log or logit link.
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


def read_model(path):
    """The manifest and the arrays of a model; refuses those that do not agree with their checksums."""
    group = zarr.open_group(path, mode="r")
    manifest = dict(group.attrs)
    if (manifest.get("encoding-type"), manifest.get("encoding-version")) != ("dslda-model", "1"):
        raise ValueError(f"{path} is not a model of version 1")
    rest = {name: value for name, value in manifest.items() if name != "manifest_sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if hashlib.sha256(text.encode()).hexdigest() != manifest["manifest_sha256"]:
        raise ValueError(f"{path}: the manifest was changed")
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
    """The number of each term."""
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
        value = covariates[column["name"]]
        if column["level"] is not None:
            value = float(value == manifest["levels"][column["name"]][column["level"]])
        added += zeta * (value - column["center"]) / column["scale"]
    if design["exposure"] is not None:
        added += math.log(covariates.get(design["exposure"], 1.0))
    return added


def predict(path, words, covariates=None):
    """Prediction and topic proportions of a document.

    Parameters: the path of the model, a dict of counts by word, and a dict of covariates by name.
    """
    covariates = covariates or {}
    manifest, arrays = read_model(path)
    family, design = manifest["family"], manifest["design"]
    if family not in (*IDENTITY, *LOG, *LOGIT):
        raise ValueError(f"this program knows {', '.join((*IDENTITY, *LOG, *LOGIT))}, got {family}")
    weights, eta, alpha = word_weights(manifest, arrays), arrays["eta"], arrays["alpha"]
    number = vocabulary(arrays)
    terms = [t for t in map(number.get, words) if t is not None and weights[:, t].any()]
    counts = np.array([words[word] for word in words if number.get(word) in terms], dtype=float)
    added = covariate_part(manifest, arrays, covariates)

    if not terms:  # the base rate
        gamma = alpha
        base = arrays["base"][0] if "base" in arrays else eta @ alpha / alpha.sum()
        mean, variance, log_mean = base + added, 0.0, base + added
    else:
        phi, gamma = assignments(weights[:, terms].T, alpha, counts)
        n = counts.sum()
        means = phi @ eta
        mean = counts @ means / n + added
        variance = counts @ (phi @ eta**2 - means**2) / n**2
        top = eta.max() / n
        log_mean = counts @ (top + np.log(phi @ np.exp(eta / n - top))) + added

    if family in IDENTITY:
        scaled = mean
    elif family in LOG:
        scaled = math.exp(log_mean)
    else:  # the mean of a logit whose argument is normal, by quadrature
        nodes, shares = np.polynomial.hermite_e.hermegauss(15)
        logits = mean + nodes * math.sqrt(max(variance, 0.0))
        scaled = shares @ (1.0 / (1.0 + np.exp(-logits))) / shares.sum()
    prediction = design["scaling"]["center"] + design["scaling"]["scale"] * scaled
    if design["trials"]:
        prediction *= covariates.get(design["auxiliary"], 1.0)
    return {"prediction": float(prediction), "topics": (gamma / gamma.sum()).tolist()}


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    try:
        print(json.dumps(predict(sys.argv[1], *map(json.loads, sys.argv[2:]))))
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"{sys.argv[1]}: {error}")
