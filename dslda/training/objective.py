"""The objective of a fit, chosen from its settings and documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.block import DocumentBlock
from dslda.engine.conditional.recipe import inner_share_of
from dslda.engine.conditional.selection import Selection
from dslda.engine.data.fit_source import FitSource
from dslda.engine.data.hashes import document_hashes
from dslda.engine.data.training_view import TrainingBlock, TrainingView
from dslda.exceptions import InputError
from dslda.settings import SETTINGS
from dslda.variational.conditional.loss import Responses
from dslda.variational.parameters import FitSpec
from dslda.wording import number_of

__all__ = ["with_objective"]

ENOUGH_LABELLED = 250
"""Documents with a response from which on an inner part of them can judge a model."""
LEAST_LABELLED = 50
"""Fewest documents with a response for conditional training by name."""
LEAST_JUDGING = 5
"""Fewest different documents of the inner part that can judge epochs. Of 50 documents, drawn by chance, it has 15, and fewer
than 5 once in 6,000 times."""


def with_objective(spec: FitSpec, source: FitSource, n_responses: int) -> tuple[FitSpec, str]:
    """The settings with the objective, and one line that tells an automatic choice, else "".

    Parameters
    ----------
    spec : FitSpec
    source : FitSource
        The documents to train on, with the design of the fit. All are read where some may have weight 0, and otherwise as
        many as tell that the inner part can judge conditional training: mostly those of one partition.
    n_responses : int
        Documents with a response, of any weight.

    Raises
    ------
    InputError
        Settings belong to the other objective, or there are too few documents with a response.
    """
    joint = [*_set_for(spec, "joint"), *(["doc_topic_prior"] if spec.doc_topic_prior == "asymmetric" else [])]
    conditional = _set_for(spec, "conditional")
    told, because = "", ""
    if spec.objective == "auto":
        reason, n_labelled = "", 0
        if joint:
            reason = f"{' and '.join(joint)} {'belongs' if len(joint) == 1 else 'belong'} to it"
        elif spec.n_topics == 1:
            reason = "there is one topic"
        elif spec.max_iter < 2:
            reason = "there is one iteration"
        else:
            n_labelled = _n_labelled(source, n_responses)
            # who names a setting of conditional training asks for it
            reason = _against_conditional(
                source, n_labelled, n_responses, LEAST_LABELLED if conditional else ENOUGH_LABELLED
            )
        spec = replace(spec, objective="joint" if reason else "conditional")
        told = f"objective: joint ({reason})"
        because = f", chosen because {reason}" if reason else ""
        if not reason:
            told = (
                f"objective: conditional, for prediction ({_with_response(n_labelled, n_responses)}); joint is the paper's "
                "model"
            )
    elif spec.objective == "conditional":
        if joint:
            raise InputError(
                "must be left out of conditional training: the joint model uses it",
                parameter=tuple(joint),
                remedy="train with {objective='joint'}",
            )
        n_labelled = _n_labelled(source, n_responses)
        if n_labelled < LEAST_LABELLED:
            raise InputError(
                f"must be 'joint' for fewer than {LEAST_LABELLED} documents with a response of weight above 0, got "
                f"{number_of(n_labelled, 'document')}",
                parameter="objective",
            )
        if spec.max_iter < 2:
            raise InputError("must be at least 2 for conditional training, got 1", parameter="max_iter")
    if spec.objective == "joint" and conditional:
        raise InputError(
            f"must be left out of the joint model{because}: only conditional training uses it",
            parameter=tuple(conditional),
            remedy=() if because else "train with {objective='conditional'}",
        )
    return spec, told


def _against_conditional(source: FitSource, n_labelled: int, n_responses: int, enough: int) -> str:
    """Why the documents are too few, or too much alike, for conditional training; "" if they are not."""
    if n_labelled < enough:
        return f"{_with_response(n_labelled, n_responses)}, fewer than {enough}"
    share = inner_share_of(n_labelled)
    # the fit keeps copies together where there are many
    n = _n_judging(source, [Selection(True, share, by_words=by_words) for by_words in (False, True)])
    if n < LEAST_JUDGING:
        return (
            f"the inner part of the documents, which judges conditional training, has {number_of(n, 'different document')} "
            f"with a response and a word of the others, fewer than {LEAST_JUDGING}"
        )
    return ""


def _with_response(n_labelled: int, n_responses: int) -> str:
    of_weight = "" if n_labelled == n_responses else " of weight above 0"
    return f"{number_of(n_labelled, 'document')} with a response{of_weight}"


def _n_labelled(source: FitSource, n_responses: int) -> int:
    """Documents with a response of a weight above 0."""
    design = source.design
    if not source.weighted and design.weight is None and design.class_weight is None:
        return n_responses
    return sum(source.each(_count_labelled))


def _n_judging(source: FitSource, ways: Sequence[Selection]) -> int:
    """Different documents of the inner part with a response and a word of the others; no more than LEAST_JUDGING count.

    Of several ways to draw it, the one with fewest.
    """
    found: list[set[int]] = [set() for _ in ways]

    def enough(hashes: Sequence[Sequence[int]]) -> bool:
        for judging, more in zip(found, hashes, strict=True):
            judging.update(more)
        return min(map(len, found)) >= LEAST_JUDGING

    # the words of a partition mostly suffice, and the first few partitions
    if any(map(enough, source.each(partial(_judging, ways=ways)))):
        return LEAST_JUDGING
    known = np.zeros((len(ways), source.n_terms), dtype=np.bool_)
    for terms in source.each(partial(_words_of_others, ways=ways)):
        for words, more in zip(known, terms, strict=True):
            words[more] = True
    of_all = [np.flatnonzero(words) for words in known]
    if any(map(enough, source.each(partial(_judging, ways=ways, known=of_all)))):
        return LEAST_JUDGING
    return min(map(len, found))


def _count_labelled(block: DocumentBlock, view: TrainingView) -> int:
    return int(np.count_nonzero(_counts(view(block))))


def _counts(documents: TrainingBlock) -> NDArray[np.bool_]:
    """Which documents have a response of a weight above 0."""
    responses = Responses.of(documents.y, documents.extras)
    return responses.labelled & (responses.weight > 0.0)


def _words_of_others(
    block: DocumentBlock, view: TrainingView, *, ways: Sequence[Selection]
) -> list[NDArray[np.int32]]:
    """For each way, the terms of the documents outside the inner part whose words have a weight, ascending."""
    documents = view(block)
    return [_words_outside(inner, documents) for inner in ways]


def _words_outside(inner: Selection, documents: TrainingBlock) -> NDArray[np.int32]:
    others = replace(inner, inner=False).of(documents)
    weighted = Responses.of(others.y, others.extras).word_weight > 0.0
    return np.unique(others.take(weighted).terms)


def _judging(
    block: DocumentBlock,
    view: TrainingView,
    *,
    ways: Sequence[Selection],
    known: Sequence[NDArray[np.int64]] | None = None,
) -> list[list[int]]:
    """For each way, hashes of up to LEAST_JUDGING documents of the inner part with a response and a known word.

    Words are known that others of the same partition have, unless `known` lists those of all.
    """
    documents = view(block)
    found = []
    for i, inner in enumerate(ways):
        own = inner.of(documents)
        terms = _words_outside(inner, documents) if known is None else known[i]
        hits = np.concatenate([[0], np.cumsum(np.isin(own.terms, terms))])
        has_word = hits[own.indptr[1:]] > hits[own.indptr[:-1]]
        chosen = own.take(has_word & _counts(own))
        hashes = np.unique(document_hashes(chosen.indptr, chosen.terms, chosen.counts))
        found.append(hashes[:LEAST_JUDGING].tolist())
    return found


def _set_for(spec: FitSpec, objective: str) -> list[str]:
    """Names of the settings of one objective that differ from their defaults."""
    return [
        name
        for name, setting in SETTINGS.items()
        if setting.objective == objective and getattr(spec, name) != setting.default
    ]
