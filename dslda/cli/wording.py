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
        "max_iter",
        "min_df",
        "max_df",
        "max_features",
        "partition_tokens",
        "stop_words",
        "token_pattern",
        "topic_prior",
    ),
)
"""Names that are no words: they are parameters wherever they stand outside quotes."""
OTHERS = (
    *(
        "alpha",
        "categorical",
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
    message = message.replace("overwrite=True", "--overwrite").replace("append=True", "--append")
    subject = AT_THE_BEGINNING.match(message)
    if subject is not None:
        options = re.sub(_ANY, lambda found: _option(found[0]), subject[0])
        message = options + message[subject.end() :]
    return ANYWHERE.sub(lambda found: _option(found[1] or found[2]), message)


def _option(parameter: str) -> str:
    return "--" + RENAMED.get(parameter, parameter).replace("_", "-").replace(" ", "-")
