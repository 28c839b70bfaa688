"""The library's messages in the words of the command line."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from dslda.cli import option_wording
from dslda.cli.option_wording import in_options


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("n_topics must be at most 100000", "--topics must be at most 100000"),
        ("raise max_iter, or tol", "raise --max-iter, or tol"),
        ("give text=, or words= and counts=, not both", "give --text, or --words and --counts, not both"),
        ("categorical must name fields", "--categorical must name fields"),
        ("name it with categorical=", "name it with --categorical"),
        ("text and words must be left out: text files", "--text and --words must be left out: text files"),
        ("workers, memory limit are for workers here", "--workers, --memory-limit are for workers here"),
        ("x is there; give overwrite=True", "x is there; give --overwrite"),
        ("append=True and overwrite=True exclude each other", "--append and --overwrite exclude each other"),
        ("name the column with trials=; family", "name the column with --trials; family"),
        ("use family='gaussian', or number", "use --family gaussian, or number"),
        ("match the terms with realign=True", "match the terms with --realign"),
        (
            "train a model on it, or open it with open_corpus",
            "train a model on it, or look at it with dslda info",
        ),
        ("give more memory, or leave these documents out with documents=", "give more memory"),
        # what is the user's stays as it is
        ("no field 'min_df' for the text", "no field 'min_df' for the text"),
        ("/data/min_df/max_iter.csv is empty", "/data/min_df/max_iter.csv is empty"),
        ("a?id=7&format=csv is empty", "a?id=7&format=csv is empty"),
        ("response 'text=' is constant", "response 'text=' is constant"),
    ],
)
def test_parameters_become_options(said: str, told: str) -> None:
    assert in_options(said) == told


PYTHON = re.compile(
    r"\b[a-z_]+=(?![\w{(=])|\bopen_corpus\b|\bload_model\b|\bregistry\b|\b[a-z_]+\(\)|\bNone\b.* or 'a"
)
"""What a message can name of Python: keywords, functions."""
OF_PYTHON_ALONE = frozenset(
    [
        "appender.py",
        "coefficients.py",
        "contributions.py",
        "estimators.py",
        "model.py",
        "partition_writer.py",
        "testing.py",
        "entry.py",
        "writer.py",
    ]
)
"""Modules whose messages of this kind the command line has no way to; it has no matrices either."""


def test_no_message_of_the_library_speaks_of_python_on_the_command_line() -> None:
    n_found, left = 0, []
    for path in (Path(option_wording.__file__).parents[1]).rglob("*.py"):
        if path.name in OF_PYTHON_ALONE or path.parent.name == "kernels":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for raised in (n for n in ast.walk(tree) if isinstance(n, ast.Raise) and isinstance(n.exc, ast.Call)):
            assert isinstance(raised.exc, ast.Call)
            for part in raised.exc.args:
                message = "".join(
                    str(piece.value) if isinstance(piece, ast.Constant) else "{}"
                    for piece in (part.values if isinstance(part, ast.JoinedStr) else [part])
                )
                n_found += bool(PYTHON.search(message))
                if PYTHON.search(in_options(message)) and not message.startswith("the matrix "):
                    left.append(f"{path.name}:{raised.lineno}: {in_options(message)}")
    assert n_found > 0
    assert not left
