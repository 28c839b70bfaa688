"""The library's messages in the words of the command line: it speaks of parameters, here they are options."""

from __future__ import annotations

import re

__all__ = ["in_options"]

RENAMED = {
    "n_topics": "topics",
    "doc_topic_prior": "alpha",
    "response_weight": "rho",
}
UNMISTAKABLE = (
    *RENAMED,
    *(
        "checkpoint_every",
        "hold_out",
        "max_iter",
        "min_df",
        "max_df",
        "max_features",
        "on_error",
        "output_format",
        "rescore_changed",
        "class_weight",
        "partition_tokens",
        "stop_words",
        "token_pattern",
        "topic_estimation",
        "topic_prior",
    ),
)
"""Names that are no words: they are parameters wherever they stand outside quotes."""
OTHERS = (
    *(
        "alpha",
        "categorical",
        "checkpoint",
        "counts",
        "covariates",
        "event",
        "exposure",
        "family",
        "format",
        "granularity",
        "id",
        "lowercase",
        "memory limit",
        "metrics",
        "ngrams",
        "response",
        "rho",
        "ridge",
        "scheduler",
        "seed",
    ),
    *("text", "threads", "tol", "trials", "vocabulary", "weight", "words", "workers"),
)
"""Names that are words too: parameters where a message begins with them, or where they end in "="."""
SAID_OTHERWISE = {
    "open it with open_corpus": "look at it with dslda info",
    "open it with load_model": "look at it with dslda info",
    "register its class before (dslda.families.registry.register)": "name it with --family MODULE:CLASS",
    "raise max_sweeps, or sweep_tol": "dslda.train in Python has max_sweeps and sweep_tol to change that",
    ", or leave these documents out with documents=": "",
    ", or arrays with covariates=": "",
    "chosen to train on (documents=)": "chosen to train on (--hold-out)",
    "train with terms=": "train on a corpus",
    "Poisson(dispersion='pearson') has": "a Poisson(dispersion='pearson') of a module of yours (--family MODULE:NAME) has",
    ", None for 1/K": ", 1/K",
    ", or None for the default of the family": "",
}
"""Advice that is of Python alone, and what there is to do on the command line."""

_ANY = "|".join((*UNMISTAKABLE, *OTHERS))
ANYWHERE = re.compile(rf"""(?<![\w'"./-])(?:({"|".join(UNMISTAKABLE)})(?![\w'"=])|({_ANY})=(?![\w='"]))""")
WITH_A_VALUE = re.compile(rf"""(?<![\w'"./-])({_ANY})='(\w+)'""")
AT_THE_BEGINNING = re.compile(rf"(?:(?:{_ANY})(?:, | and ))*(?:{_ANY})(?= (?:must|are for)\b)")


def in_options(message: str) -> str:
    """A message with the options in the place of parameters."""
    for said, told in SAID_OTHERWISE.items():
        message = message.replace(said, told)
    for keyword in ("overwrite", "append", "resume", "realign", "rescore_changed"):
        message = message.replace(f"{keyword}=True", f"--{keyword.replace('_', '-')}")
    subject = AT_THE_BEGINNING.match(message)
    if subject is not None:
        options = re.sub(_ANY, lambda found: _option(found[0]), subject[0])
        message = options + message[subject.end() :]
    message = WITH_A_VALUE.sub(lambda found: f"{_option(found[1])} {found[2]}", message)
    return ANYWHERE.sub(lambda found: _option(found[1] or found[2]), message)


def _option(parameter: str) -> str:
    return "--" + RENAMED.get(parameter, parameter).replace("_", "-").replace(" ", "-")
