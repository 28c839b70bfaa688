"""The library's messages in the words of the command line: it speaks of parameters, here they are options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dslda.model import Coefficient

__all__ = ["in_options", "raising"]

RENAMED = {
    "n_topics": "topics",
    "doc_topic_prior": "alpha",
    "response_weight": "rho",
}
UNMISTAKABLE = (
    *RENAMED,
    *(
        "checkpoint_every",
        "max_iter",
        "min_df",
        "max_df",
        "max_features",
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
        "format",
        "granularity",
        "id",
        "lowercase",
        "memory limit",
        "ngrams",
        "response",
        "rho",
    ),
    *("scheduler", "seed", "text", "threads", "tol", "vocabulary", "weight", "words", "workers"),
)
"""Names that are words too: parameters where a message begins with them, or where they end in "="."""

_ANY = "|".join((*UNMISTAKABLE, *OTHERS))
ANYWHERE = re.compile(rf"""(?<![\w'"./-])(?:({"|".join(UNMISTAKABLE)})(?![\w'"=])|({_ANY})=(?![\w='"]))""")
AT_THE_BEGINNING = re.compile(rf"(?:(?:{_ANY})(?:, | and ))*(?:{_ANY})(?= (?:must|are for)\b)")


def in_options(message: str) -> str:
    """A message with the options in the place of parameters."""
    for keyword in ("overwrite", "append", "resume"):
        message = message.replace(f"{keyword}=True", f"--{keyword}")
    subject = AT_THE_BEGINNING.match(message)
    if subject is not None:
        options = re.sub(_ANY, lambda found: _option(found[0]), subject[0])
        message = options + message[subject.end() :]
    return ANYWHERE.sub(lambda found: _option(found[1] or found[2]), message)


def raising(topics: Sequence[Coefficient]) -> str:
    """The topics that raise a class, with their coefficients and standard errors."""
    told = [
        f"topic {each.topic} {each.coefficient:+.2f}"
        + ("" if each.standard_error != each.standard_error else f" ± {each.standard_error:.2f}")
        for each in topics
    ]
    return "raised by " + ", ".join(told) if told else "raised by no topic"


def _option(parameter: str) -> str:
    return "--" + RENAMED.get(parameter, parameter).replace("_", "-").replace(" ", "-")
