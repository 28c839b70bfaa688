"""``python -m dslda.cluster.run_worker``: a worker with its nanny, which ends with the process that has started it.

A nanny by itself asks a scheduler that is gone for ever, when that happens while its worker starts. Here standard input is
a pipe that nobody writes to: it ends when the other process does, however that ends.
"""

from __future__ import annotations

import os
from threading import Thread


def main() -> None:
    """Run ``dask spec`` with the arguments given."""
    from distributed.cli.dask_spec import main as spec

    Thread(target=_end_with_parent, daemon=True).start()
    spec(prog_name="dask spec")


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    # the worker ends with its nanny by a pipe of Dask's own
    os._exit(1)


if __name__ == "__main__":
    main()
