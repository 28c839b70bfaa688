"""The notebooks of docs/examples, run in a kernel of their own.

Run it (``python -m tests.helpers.notebooks``) to store their outputs after a change.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

__all__ = ["EXAMPLES", "SHARED_FILES", "run_notebook"]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
SHARED_FILES = {"bills": ROOT.parent / "shared" / "data" / "house_bills" / "house_bills.jsonl.gz"}
"""What a notebook takes beside it that is not part of the repository."""
SECONDS = 300


def run_notebook(path: Path, folder: Path) -> Any:
    """The notebook with the outputs of a run in this folder; an error of a cell is an error here."""
    if path.stem in SHARED_FILES:
        (folder / SHARED_FILES[path.stem].name).symlink_to(SHARED_FILES[path.stem])
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(
        notebook, timeout=SECONDS, kernel_name="python3", resources=resources, record_timing=False
    )
    return client.execute()


def store_outputs(path: Path) -> None:
    """Write a notebook with the outputs of a run, each in the form that notebooks show."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = run_notebook(path, Path(folder))
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if len(data) > 1:  # the others name folders of this machine
                data.pop("text/plain", None)
    # of the version of Python that ran it
    notebook.metadata.language_info = {"name": "python"}
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for each in sys.argv[1:] or sorted(EXAMPLES.glob("*.ipynb")):
        store_outputs(Path(each))
