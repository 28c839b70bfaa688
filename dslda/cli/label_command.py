"""``dslda label``: names for the topics of a model."""

from __future__ import annotations

import click

from dslda.cli.terminal import echo
from dslda.exceptions import InputError
from dslda.wording import labelled

__all__ = ["command"]


@click.command(
    "label",
    short_help="Give a topic of a model a name.",
    epilog="""\b
Examples:
  dslda label stars.model 3 "it does not fit"
  dslda label stars.model 3 --remove""",
)
@click.argument("model_path", metavar="MODEL")
@click.argument("topic", type=int)
@click.argument("label", required=False)
@click.option("--remove", is_flag=True, help="Take the topic's name away.")
def command(model_path: str, *, topic: int, label: str | None, remove: bool) -> None:
    """Name TOPIC of MODEL by its number; LABEL is one line of up to 80 characters.

    Tables and messages then show the name beside the number. The model predicts as before, folders of its scores
    take it as the same model, and columns such as topic_3 keep their names.
    """
    if remove is (label is not None):
        raise InputError(
            "take the name away, so give either this or a name", parameter="remove", remedy="see --help"
        )
    from dslda.persistence.model_store import label_stored_topic

    label = label_stored_topic(model_path, topic, label)
    echo(f"{model_path}: topic {labelled(topic, label)}")
