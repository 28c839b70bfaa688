"""The library's messages in the words of the command line."""

from __future__ import annotations

import pytest

from dslda.cli.wording import in_options


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
        # what is the user's stays as it is
        ("no field 'min_df' for the text", "no field 'min_df' for the text"),
        ("/data/min_df/max_iter.csv is empty", "/data/min_df/max_iter.csv is empty"),
        ("a?id=7&format=csv is empty", "a?id=7&format=csv is empty"),
        ("response 'text=' is constant", "response 'text=' is constant"),
    ],
)
def test_parameters_become_options(said: str, told: str) -> None:
    assert in_options(said) == told
