"""The library's messages in the words of the command line: parameters become the options of the command that runs."""

from __future__ import annotations

import click

from dslda.exceptions import DsldaError, DsldaWarning, Note, Words

__all__ = ["option_words", "shown"]

QUOTES = "'\""
FUNCTIONS = {
    "open_corpus()": "dslda info",
    "load_model()": "dslda info",
    "class_topics()": "dslda topics --by-class",
}
"""Commands that do what functions of Python do."""


def option_words(command: click.Command | None) -> Words:
    """The options of a command, for messages that refer to parameters."""
    options: dict[str, click.Option] = {}
    for option in () if command is None else command.params:
        if isinstance(option, click.Option):
            options[option.opts[0].removeprefix("--").replace("-", "_")] = option
            options[str(option.name).rstrip("_")] = option

    def words(reference: str) -> str | None:
        name, _, value = reference.partition("=")
        if name == "dslda.families.registry.register()":
            return "--family MODULE:CLASS" if "family" in options else None
        if name.endswith("()"):
            return FUNCTIONS.get(name)
        option = options.get(name)
        if option is None:
            return None
        if not value or option.is_flag:
            return option.opts[0]
        return f"{option.opts[0]} {value.strip(QUOTES)}"

    return words


def shown(message: object, words: Words) -> str:
    """A message, warning or note as the command line shows it."""
    return message.in_words(words) if isinstance(message, (DsldaError, DsldaWarning, Note)) else str(message)
