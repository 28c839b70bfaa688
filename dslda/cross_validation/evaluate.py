"""Entry to cross-validation: keywords, checks, and the fits, beside each other or in turn."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dslda.cluster.client import ClientLater, check_client, check_reach
from dslda.cluster.opening import cluster, default_workers, worker_per_core
from dslda.cluster.runner import DaskRunner, Runner, SerialRunner
from dslda.cluster.stage_progress import stage_progress
from dslda.corpus.store import Corpus, open_corpus
from dslda.cross_validation.evaluation import Evaluation, Pooled, evaluation_of, pooled
from dslda.cross_validation.evaluation_folder import EvaluationFolder
from dslda.cross_validation.fold_fit import Cell, FoldFit, Problem, fit_fold, kind_of
from dslda.cross_validation.splitting import (
    Fold,
    Splitting,
    column_of,
    contents_of,
    split,
    with_known_classes,
    with_own_groups,
)
from dslda.engine.dask.plugin import register
from dslda.exceptions import DataWarning, InputError, warn
from dslda.prediction.responses import responses_of_corpus
from dslda.settings import OTHER_NAMES, SETTINGS
from dslda.storage.location import is_in_memory
from dslda.training.checks import check_response
from dslda.training.response import response_model
from dslda.training.starts import is_small, quiet_in_task
from dslda.training.training_set import TrainingSet, named_roles, training_set_of_corpus
from dslda.versions import library_versions
from dslda.wording import check_keywords, number_name, number_of

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["TOPICS", "evaluate"]

logger = logging.getLogger("dslda.training")

TOPICS = (5, 10, 20, 50)
FOLDS = 5
LIBRARIES = ("numpy", "numba", "scipy", "zarr", "scikit-learn")

FIGURE = re.compile(r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")
"""A figure in the message of a warning."""

ROLES = ("family", "covariates", "weight", "exposure", "trials", "event", "class_weight", "levels")
"""Keywords of a fit beside its settings."""
KNOWN = (set(SETTINGS) - {"n_topics", "bootstrap"}) | set(ROLES)


def evaluate(
    data: Corpus | str | os.PathLike[str],
    *,
    response: str | None = None,
    n_topics: Sequence[int] | int = TOPICS,
    folds: int = FOLDS,
    groups: str | None = None,
    time: str | None = None,
    rivals: bool = True,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    client: Client | ClientLater | None = None,
    **settings: Any,
) -> Evaluation:
    """Cross-validate fits of several numbers of topics, and choose one.

    Each document with a response is predicted by a fit that has not seen it. All measures pool these predictions, and
    methods are compared document by document. The result is a pure function of the corpus, the settings and the versions of
    the libraries, whatever the number of workers.

    Parameters
    ----------
    data : Corpus or path of one
    response : str, optional
        Name of the response, by default the only one of the corpus.
    n_topics : int or sequence of int, default (5, 10, 20, 50)
    folds : int, default 5
        Drawn by a hash of the words of each document: they do not depend on `seed`, documents with the same words are in one
        fold, and each class is spread evenly over all.
    groups : str, optional
        A covariate, such as the author: all documents of a group are in one fold, so that authors are judged by fits that
        know none of their texts. Standard errors then take groups to vary as wholes. A document without one is a group of
        its own.
    time : str, optional
        A covariate of numbers, such as the year: documents are cut into ``folds + 1`` parts in its order, and each part but
        the first is judged by a fit to all that came before. Documents without one are left out.
    rivals : bool, default True
        In the same folds, a penalised linear model on TF-IDF, and one on the topics of scikit-learn's LDA with the number of
        topics chosen; both choose their penalties inside the training documents.
    out : str or path, optional
        Folder, local or any fsspec URL, for the results: ``table.csv``, ``evaluation.json``, ``topics.svg`` (with
        matplotlib), and a file for each fit. The same call goes on where an earlier one stopped, and adds other numbers of
        topics.
    overwrite : bool, default False
        Replace the evaluation at `out`.
    client : distributed.Client, optional
        Where to work, by default as in :func:`dslda.train`. Fits to a small corpus run beside each other, one in each thread
        of the workers, which read it from its store; those to a large one follow each other on all workers.
    **settings
        Further keywords of :func:`dslda.train`: `family`, `objective`, `covariates`, `seed` and the like.

    Returns
    -------
    Evaluation

    Raises
    ------
    InputError
        Before any fit: a setting is out of its domain; there are too few documents, groups or times for the folds; or `out`
        holds another evaluation. Otherwise as :func:`dslda.train`.
    TypeError
        There is no such keyword.

    Warns
    -----
    DataWarning
        Fits warned: each warning once, with the number of fits. Some documents have no prediction by some fit, no time, or a
        class that no document which their fold is trained on has: they judge none.

    Examples
    --------
    >>> found = evaluate("reviews.corpus", response="rating", n_topics=[10, 20])  # doctest: +SKIP
    >>> print(*found.in_words)  # doctest: +SKIP
    """
    check_client(client)
    check_keywords(evaluate, settings, known=KNOWN, other_names=OTHER_NAMES)
    numbers = _numbers_of_topics(n_topics)
    corpus = data if isinstance(data, Corpus) else open_corpus(data)
    splitting = Splitting.of(corpus, folds, groups=groups, time=time)
    problem, training_set = _problem(corpus, response, settings)
    cut, clusters = _cut(problem, splitting)
    folder = None
    if out is not None:
        folder = EvaluationFolder(out)
        folder.begin(_plan(problem, splitting), overwrite=overwrite)
    check_reach([corpus.path], client)
    small, in_memory = is_small(training_set.source), is_in_memory(corpus.path)
    if client is None and not in_memory:
        client = default_workers(worker_per_core if small else cluster, [corpus.path])
    if rivals and not small:
        logger.info("no rivals: scikit-learn would hold the corpus, which is large, in one process")
    with _Fits(problem, cut, folder, client, small=small) as fits:
        methods = fits.run(
            [Cell("dslda", k, fold) for k in sorted(numbers, reverse=True) for fold in range(len(cut))]
        )
        methods.sort(key=lambda method: method.n_topics or 0)
        found, without = evaluation_of(problem, splitting.in_words, methods, clusters)
        if rivals and small:
            more = [Cell("tfidf", None, fold) for fold in range(len(cut))]
            more += [Cell("lda", found.choice.n_topics, fold) for fold in range(len(cut))]
            methods += fits.run(more)
            found, without = evaluation_of(problem, splitting.in_words, methods, clusters)
    fits.report()
    if without:
        warn(
            DataWarning(
                f"{number_of(without, 'document')} judge nothing: a fit has no prediction for them",
                remedy="look for a covariate that is missing, or a level that is in one fold alone",
            )
        )
    if folder is not None:
        folder.finish(found)
    return found


def _cut(problem: Problem, splitting: Splitting) -> tuple[tuple[Fold, ...], NDArray[np.float64] | None]:
    """The folds, and the groups of documents that vary together; says which documents judge none."""
    responses, y = np.isfinite(problem.y), problem.y
    has_classes = problem.names is not None
    groups = None
    if splitting.column is None:
        contents = contents_of(problem.corpus)
        cut = split(splitting, responses, contents=contents, classes=y if has_classes else None)
    else:
        column = column_of(problem.corpus, splitting.column)
        if n := int(np.count_nonzero(np.isnan(column[responses]))):
            lacking = f"{number_of(n, 'document')} with a response {'lacks' if n == 1 else 'lack'} {splitting.column!r}"
            if splitting.kind == "groups":
                logger.info("%s: each is a group of its own", lacking)
            else:
                warn(DataWarning(f"{lacking}, so that nothing comes before or after them: they are left out"))
        if splitting.kind == "groups":
            column = groups = with_own_groups(column)
        cut = split(splitting, responses, column)
    if problem.names is not None:
        cut, n = with_known_classes(cut, y, problem.names)
        if n:
            warn(
                DataWarning(
                    f"{number_of(n, 'document')} judge{'s' if n == 1 else ''} nothing: no document that their fold is "
                    "trained on has their class",
                    remedy="leave rare classes out, or join them",
                )
            )
    return cut, groups


class _Fits:
    """The fits of one evaluation: those that are still to be done are run, and kept in the folder.

    The client is opened by the first of them, and closed at the end.
    """

    def __init__(
        self,
        problem: Problem,
        cut: Sequence[Fold],
        folder: EvaluationFolder | None,
        client: Client | ClientLater | None,
        *,
        small: bool,
    ) -> None:
        self._problem, self._cut, self._folder = problem, cut, folder
        self._later, self._opened = client, ExitStack()
        self._small = small
        self._warned: Counter[str] = Counter()
        self._n_fits = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.__exit__(*error)

    @cached_property
    def _client(self) -> Client | None:
        return None if self._later is None else self._opened.enter_context(cluster(self._later))

    def run(self, cells: Sequence[Cell]) -> list[Pooled]:
        """Pool the folds of every method and number of topics among the cells."""
        done = (
            {}
            if self._folder is None
            else {c: fit for c in cells if (fit := self._read(self._folder, c)) is not None}
        )
        if done:
            logger.info("%d of %s are there from an earlier run", len(done), number_of(len(cells), "fit"))
        rest = [cell for cell in cells if cell not in done]
        for cell, fit in self._fitted(rest):
            done[cell] = fit
            if self._folder is not None:
                self._folder.write(cell, fit)
        self._n_fits += len(cells)
        self._warned.update(warning for fit in done.values() for warning in fit.warnings)
        methods = dict.fromkeys((cell.method, cell.n_topics) for cell in cells)
        return [
            pooled(method, k, [done[Cell(method, k, fold)] for fold in range(len(self._cut))])
            for method, k in methods
        ]

    def _read(self, folder: EvaluationFolder, cell: Cell) -> FoldFit | None:
        return folder.read(cell, self._cut[cell.fold], self._problem.names)

    def _fitted(self, cells: Sequence[Cell]) -> Iterator[tuple[Cell, FoldFit]]:
        if not cells:
            return
        with stage_progress() as progress:
            if self._small and self._client is not None:
                logger.info("%s run beside each other on the workers", number_of(len(cells), "fit"))
                register(self._client, self._problem.family, objective="conditional")
                runner: Runner = DaskRunner(self._client, progress)
                shared = runner.share(self._problem)
                rows: Iterator[tuple[Any, ...]] = ((shared, cell, self._cut[cell.fold]) for cell in cells)
                work: Callable[..., FoldFit] = _fit_in_task
            else:
                runner, work = SerialRunner(progress), fit_fold
                rows = ((self._problem, cell, self._cut[cell.fold], self._client) for cell in cells)
            try:
                for i, fit in runner.stream(work, rows, n=len(cells), stage="fit"):
                    yield cells[i], fit
            finally:
                runner.cancel()

    def report(self) -> None:
        """Warn once of each thing that fits warned of, whatever the figures in it."""
        alike: dict[str, list[str]] = {}
        for message in self._warned:
            alike.setdefault(FIGURE.sub("#", message), []).append(message)
        for first, *others in alike.values():
            n = sum(self._warned[message] for message in (first, *others))
            figures = ", with other figures in some" if others else ""
            warn(DataWarning(f"{first} (in {n} of {number_of(self._n_fits, 'fit')}{figures})"))


def _fit_in_task(problem: Problem, cell: Cell, fold: Fold) -> FoldFit:
    quiet_in_task()
    return fit_fold(problem, cell, fold)


def _numbers_of_topics(n_topics: Sequence[int] | int) -> tuple[int, ...]:
    given = n_topics.tolist() if isinstance(n_topics, np.ndarray) else n_topics
    numbers = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
    if not numbers:
        raise InputError("must have at least one number, got none", parameter="n_topics")
    for number in numbers:
        SETTINGS["n_topics"].check(number)
    return tuple(sorted({int(number) for number in numbers}))


def _problem(
    corpus: Corpus, response: str | None, settings: Mapping[str, Any]
) -> tuple[Problem, TrainingSet]:
    """The responses, and how they are measured; refuses what :func:`dslda.train` would."""
    given = {name: settings.get(name) for name in ROLES if name != "family"}
    roles = named_roles(**(given | {"covariates": given["covariates"] or ()}))
    training_set = training_set_of_corpus(corpus, response, None, roles)
    check_response(training_set)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # fits warn of their own documents
        model = response_model(settings.get("family", "gaussian"), training_set, roles)
    assert training_set.response is not None
    kind = kind_of(model.family, trials=roles.trials is not None)
    values = responses_of_corpus(corpus, training_set.response)
    names: tuple[str, ...] | None = None
    if kind in ("ordinal", "classes"):
        found = [None if v is None or v != v else v if isinstance(v, str) else number_name(v) for v in values]
        present = {name for name in found if name is not None}
        order = roles.levels or training_set.order or corpus.levels.get(training_set.response)
        if order is None:
            order = tuple(number_name(v) for v in sorted({float(name) for name in present}))
        names = tuple(name for name in order if name in present)
        if kind == "classes" and len(names) == 2:
            kind = "binary"
        places = {name: float(place) for place, name in enumerate(names)}
        y = np.array([np.nan if name is None else places[name] for name in found])
    else:
        y = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    if roles.event is not None:
        # a duration that was cut off is only a lower bound
        y[column_of(corpus, roles.event) == 0.0] = np.nan
    problem = Problem(corpus, training_set.response, model.family, kind, names, y, dict(settings))
    return problem, training_set


def _plan(problem: Problem, splitting: Splitting) -> dict[str, Any]:
    """All that the fits depend on but their numbers of topics, as JSON."""
    defaults = {name: setting.default for name, setting in SETTINGS.items()} | {
        "family": "gaussian",
        "covariates": (),
    }
    settings = {
        name: _plain(value)
        for name, value in sorted(problem.settings.items())
        if value is not None and _plain(value) != _plain(defaults.get(name))
    }
    return {
        "corpus": problem.corpus.content_hash,
        "response": problem.response,
        "folds": splitting.n_folds,
        splitting.kind: splitting.column,
        "settings": settings,
        "versions": library_versions(*LIBRARIES),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    return f"{type(value).__module__}.{type(value).__qualname__} {getattr(value, 'options', '')}"
