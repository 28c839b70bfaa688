"""Train on workers that SLURM starts as jobs, through dask-jobqueue: see README.md. Run again, it goes on where it was."""

from __future__ import annotations

from dask_jobqueue import SLURMCluster
from distributed import Client, Security

import dslda
from dslda.evaluation.metrics import held_out

JOBS = 8
"""Workers, each a job of one machine."""


def make_cluster() -> SLURMCluster:
    """A scheduler in this process, and jobs that are not submitted yet."""
    return SLURMCluster(
        queue="batch",
        account="reviews",
        walltime="12:00:00",
        # one process for all cores of a job: its threads share the parameters
        cores=16,
        processes=1,
        memory="64 GiB",
        # anyone who reaches the scheduler can run code as you: use the certificates of Dask's configuration
        security=Security(),
        protocol="tls://",
        scheduler_options={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        worker_extra_args=["--no-dashboard", "--dashboard-address", "127.0.0.1:0"],
        # local, not shared: workers spill here, and two machines must not write to one numba cache
        local_directory="/tmp",
        job_script_prologue=["export NUMBA_CACHE_DIR=/tmp/dslda-numba-$USER"],
        log_directory="logs",
    )


def main() -> None:
    """Train and save the model."""
    corpus = dslda.open_corpus("reviews.corpus")
    with make_cluster() as cluster, Client(cluster) as client:
        cluster.scale(jobs=JOBS)
        client.wait_for_workers(1)
        model = dslda.train(
            corpus,
            response="rating",
            n_topics=50,
            # keep a tenth from training, as --hold-out 0.1 does: scores get intervals, and drift a reference
            documents=~held_out(corpus.n_documents, 0.1),
            client=client,
            checkpoint="stars.checkpoint",
            resume=True,
        )
    model.save("stars.model", overwrite=True)


if __name__ == "__main__":
    main()
