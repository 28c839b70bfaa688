"""Score new documents every week with the command that cron would run. Copy this file into Airflow's folder of DAGs."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

# By path, because dslda has its own virtual environment: Airflow pins some hundred packages. The pattern is in quotes, so
# that dslda sees it instead of its matches at one moment.
COMMAND = (
    "/opt/dslda/bin/dslda score /var/lib/dslda/stars.model '/srv/dslda/incoming/*.jsonl.gz'"
    " --out /var/lib/dslda/scores --metrics /var/lib/prometheus/node-exporter/dslda.prom --json"
)

with DAG(
    dag_id="dslda_score",
    schedule="0 4 * * 1",
    start_date=datetime(2026, 1, 1),
    # a run scores everything that has arrived, so a missed run needs no catch-up
    catchup=False,
    # a second run would end with exit code 1: the folder is locked
    max_active_runs=1,
    default_args={
        # the same command resumes
        "retries": 2,
        "retry_delay": timedelta(minutes=5),
        "execution_timeout": timedelta(hours=12),
    },
    tags=["dslda"],
) as dag:
    BashOperator(
        task_id="score",
        bash_command=COMMAND,
        # workers spill into TMPDIR, which must not be in memory, as /tmp often is
        env={"NUMBA_CACHE_DIR": "/var/cache/dslda/numba", "TMPDIR": "/var/tmp"},
        append_env=True,
    )
