"""``dslda demo``: real reviews, from counted words to a model judged on reviews that it has not seen."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from dslda.cli.logs import logging_to_stderr, option_words, shown
from dslda.cli.options import OUTPUT, chosen_client, cluster_options, json_option
from dslda.exceptions import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dslda.cluster.opening import ClusterOptions
    from dslda.corpus.store import Corpus
    from dslda.model import Model

__all__ = ["command"]

RESPONSE = "rating"
N_REVIEWS = 6_000
"""Of 22,641, so that everything, the rivals included, takes less than a minute on two cores."""

RESAMPLES = 20
"""The only setting that is not the default: the report says how sure it is. 100 are usual, and take a minute more."""

HOLD_OUT = 0.2
LDA_PASSES = 10
SEED = 0

PIPE_WIDTH = 110
TOP_WORDS = 8


@click.command(
    "demo",
    short_help="Run everything once on real reviews.",
    epilog="""\b
Examples:
  dslda demo
  dslda demo --out /tmp/demo --overwrite""",
)
@click.option(
    "--out",
    type=OUTPUT,
    metavar="DIR",
    default="dslda-demo",
    show_default=True,
    help="Folder for corpus, model and report.",
)
@click.option("--overwrite", is_flag=True, help="Replace the corpus, model and report of an earlier demo.")
@cluster_options
@json_option
def command(*, out: str, overwrite: bool, cluster: ClusterOptions, json_logs: bool) -> None:
    """Learn from reviews of women's clothing what makes customers give many or few stars.

    Counts a sample of the 22,641 reviews that come with dslda, trains on four fifths, prints the topics, and
    compares predictions for the other fifth with those of LDA + regression, lasso, and ridge on TF-IDF. Ends with
    a page to look at, if matplotlib is installed. Takes about a minute, and once after installation a minute or two more.
    """
    began = time.perf_counter()
    with logging_to_stderr(json_logs=json_logs):
        from sklearn.exceptions import ConvergenceWarning

        with warnings.catch_warnings():
            # the rivals', at penalties that their cross-validation does not choose
            warnings.simplefilter("ignore", ConvergenceWarning)
            _run(out, began, overwrite=overwrite, cluster=cluster, json_logs=json_logs)


def _run(out: str, began: float, *, overwrite: bool, cluster: ClusterOptions, json_logs: bool) -> None:
    """Ingest a sample of the reviews, train with a fifth held out, and compare with what users would try."""
    import numpy as np

    from dslda.corpus.writer import check_corpus_output
    from dslda.datasets import load_clothing
    from dslda.engine.progress import LogProgress
    from dslda.evaluation.baselines import (
        fit_predict,
        lasso_pipeline,
        lda_ridge_pipeline,
        tfidf_ridge_pipeline,
    )
    from dslda.evaluation.metrics import held_out as kept_out
    from dslda.evaluation.metrics import predictive_r2
    from dslda.ingestion.ingest import ingest
    from dslda.persistence.model_store import check_model_output
    from dslda.report.page import check_page_output
    from dslda.settings import SETTINGS
    from dslda.training.train import train

    if "://" in out:
        raise InputError(f"must be a local folder, got {out}", parameter="out")
    if os.path.exists(out) and not os.path.isdir(out):
        raise InputError("must be a folder, got a file", place=out, remedy="choose another with {out=}")
    corpus_path, model_path = os.path.join(out, "clothing.corpus"), os.path.join(out, "clothing.model")
    page_path = os.path.join(out, "report.html")
    check_corpus_output(corpus_path, overwrite=overwrite)
    check_model_output(model_path, overwrite=overwrite)
    if os.path.isdir(out):
        check_page_output(page_path, overwrite=overwrite)

    reviews = load_clothing()
    rows = np.sort(np.random.default_rng(SEED).permutation(len(reviews.ids))[-N_REVIEWS:])
    click.echo(f"* counting the words of {N_REVIEWS:,} of {len(reviews.ids):,} reviews of women's clothing")
    os.makedirs(out, exist_ok=True)
    all_counts = reviews.counts[rows]
    terms, counts = _terms_of_defaults(all_counts, reviews.vocabulary)
    corpus = ingest(
        counts,
        corpus_path,
        vocabulary=terms,
        id=[reviews.ids[row] for row in rows],
        response={name: values[rows] for name, values in reviews.responses.items()},
        overwrite=overwrite,
    )

    # the reviews that --hold-out 0.2 keeps out, which the model remembers
    mask = kept_out(corpus.n_documents, HOLD_OUT)
    training, held_out = np.flatnonzero(~mask), np.flatnonzero(mask)
    y = reviews.responses[RESPONSE][rows]
    results: dict[str, tuple[float, float]] = {}

    def judge(name: str, predict: Callable[[], NDArray[np.float64]]) -> None:
        start = time.perf_counter()
        score = predictive_r2(y[held_out], predict())
        results[name] = score, time.perf_counter() - start

    click.echo(
        f"* training on {len(training):,} reviews with the settings of dslda train, and on {RESAMPLES} resamples of them for "
        f"intervals; {len(held_out):,} are held out"
    )
    model: Model | None = None

    def slda() -> NDArray[np.float64]:
        nonlocal model
        model = train(
            corpus,
            response=RESPONSE,
            hold_out=HOLD_OUT,
            bootstrap=RESAMPLES,
            client=chosen_client(cluster),
            progress=LogProgress() if json_logs else None,
        )
        return model.predict(counts[held_out])

    n_topics = SETTINGS["n_topics"].default
    judge(f"dslda, {n_topics} topics with intervals", slda)
    assert model is not None
    model.save(model_path, overwrite=overwrite)

    same, every = ((m[training], y[training], m[held_out]) for m in (counts, all_counts))
    rivals: dict[str, Callable[[], NDArray[np.float64]]] = {
        "LDA, then ridge": lambda: fit_predict(
            lda_ridge_pipeline(n_topics=n_topics, max_iter=LDA_PASSES, seed=SEED), *same
        ),
        # these two do better with all words, stop words too
        "lasso on frequencies of all words": lambda: fit_predict(lasso_pipeline(seed=SEED), *every),
        "ridge on TF-IDF of all words": lambda: fit_predict(tfidf_ridge_pipeline(seed=SEED), *every),
    }
    for name, predict in rivals.items():
        click.echo(f"* fitting a rival: {name}")
        judge(name, predict)
    _show(model, len(held_out), results)
    has_page = _report(model, corpus, page_path, overwrite=overwrite)
    corpus_name, model_name, page_name = (
        shlex.quote(os.path.relpath(path)) for path in (corpus_path, model_path, page_path)
    )
    dslda, seconds = _program(), time.perf_counter() - began
    report = f"{dslda} report {model_name} --corpus {corpus_name} --out {page_name}"
    click.echo(
        f"\nDone in {seconds:.0f} s. The model is in {model_name}, the corpus in {corpus_name}.\n"
        + (
            f"Open {page_name} in a browser: the topics with their reviews, and how far to trust them.\n"
            if has_page
            else f"For a page with figures: pip install 'dslda[plot]', then {report}\n"
        )
        + "Try next:\n"
        f"  {dslda} topics {model_name} --top 20\n"
        f"  {dslda} predict {model_name} {corpus_name} --out predictions.csv\n"
        f"  {dslda} train {corpus_name} --response age --topics 10 --out age.model\n"
        f"  {dslda} ingest --help                      to bring your own texts"
    )


def _report(model: Model, corpus: Corpus, page_path: str, *, overwrite: bool) -> bool:
    """Write the report, if matplotlib is there; return whether it is."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    click.echo("* writing the report")
    model.report(page_path, corpus, overwrite=overwrite)
    return True


def _terms_of_defaults(counts: Any, vocabulary: tuple[str, ...]) -> tuple[list[str], Any]:
    """Terms that ``dslda ingest`` keeps by default, and their columns."""
    import numpy as np

    from dslda.corpus.text import TextSettings

    usual = TextSettings()
    frequency = np.bincount(counts.indices, minlength=counts.shape[1])
    chosen = np.flatnonzero((frequency >= usual.min_df) & (frequency <= usual.max_df * counts.shape[0]))
    return [vocabulary[t] for t in chosen], counts[:, chosen]


def _show(model: Model, n_test: int, results: Mapping[str, tuple[float, float]]) -> None:
    """Print the topics, and the R2 and seconds of each method."""
    from rich.console import Console
    from rich.table import Table

    from dslda.cli.topics_command import shown_topics
    from dslda.report.model_notes import notes

    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)
    console.print()
    console.print(shown_topics(model, top=TOP_WORDS))
    click.echo("A coefficient is the number of stars expected of a review that is all about the topic.")
    words = option_words(click.get_current_context().command)
    click.echo("\n".join(shown(note, words) for note in notes(model)) + "\n")
    console.print(f"[bold]Predictive R2 for the {n_test:,} reviews held out[/] (1 is perfect, 0 is the mean)")
    table = Table()
    table.add_column("method")
    table.add_column("R2", justify="right")
    table.add_column("seconds", justify="right")
    for name, (score, seconds) in sorted(results.items(), key=lambda item: -item[1][0]):
        style = "bold" if name.startswith("dslda") else None
        table.add_row(name, f"{score:.3f}", f"{seconds:.1f}", style=style)
    console.print(table)


def _program() -> str:
    """The command that starts this program in a shell: ``dslda`` if that is on the path, else ``python -m dslda``."""
    started = sys.argv[0]
    if os.path.basename(started) == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m dslda"
    on_path = shutil.which("dslda")
    is_it = on_path is not None and os.path.exists(started) and os.path.samefile(on_path, started)
    return "dslda" if is_it or not os.path.basename(started).startswith("dslda") else shlex.quote(started)
