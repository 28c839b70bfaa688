"""The objective of a fit, chosen from its settings and documents."""

from __future__ import annotations

from dataclasses import replace

from dslda.exceptions import InputError
from dslda.settings import SETTINGS
from dslda.training.training_set import TrainingSet
from dslda.variational.parameters import FitSpec
from dslda.wording import number_of

__all__ = ["with_objective"]

ENOUGH_LABELLED = 250
"""Documents with a response from which on an inner part of them can judge a model."""
LEAST_LABELLED = 50
"""Fewest documents with a response for conditional training by name."""


def with_objective(spec: FitSpec, training_set: TrainingSet) -> tuple[FitSpec, str]:
    """The settings with the objective, and one line that tells an automatic choice, else "".

    Raises
    ------
    InputError
        Settings belong to the other objective, or there are too few documents with a response.
    """
    n_labelled = training_set.summary.n
    joint = [*_set_for(spec, "joint"), *(["doc_topic_prior"] if spec.doc_topic_prior == "asymmetric" else [])]
    conditional = _set_for(spec, "conditional")
    told = ""
    if spec.objective == "auto":
        reason = ""
        # who names a setting of conditional training asks for it
        enough = LEAST_LABELLED if conditional else ENOUGH_LABELLED
        if joint:
            reason = f"{' and '.join(joint)} {'belongs' if len(joint) == 1 else 'belong'} to it"
        elif n_labelled < enough:
            reason = f"{number_of(n_labelled, 'document')} with a response, fewer than {enough}"
        elif spec.n_topics == 1:
            reason = "there is one topic"
        elif spec.max_iter < 2:
            reason = "there is one iteration"
        spec = replace(spec, objective="joint" if reason else "conditional")
        told = f"objective: joint ({reason})"
        if not reason:
            told = (
                f"objective: conditional, for prediction ({number_of(n_labelled, 'document')} with a response); joint is the "
                "paper's model"
            )
    elif spec.objective == "conditional":
        if joint:
            raise InputError(
                "must be left out of conditional training: the joint model uses it",
                parameter=tuple(joint),
                remedy="train with {objective='joint'}",
            )
        if n_labelled < LEAST_LABELLED:
            raise InputError(
                f"must be 'joint' for fewer than {LEAST_LABELLED} documents with a response, got "
                f"{number_of(n_labelled, 'document')}",
                parameter="objective",
            )
        if spec.max_iter < 2:
            raise InputError("must be at least 2 for conditional training, got 1", parameter="max_iter")
    if spec.objective == "joint" and conditional:
        raise InputError(
            "must be left out of the joint model: only conditional training uses it",
            parameter=tuple(conditional),
            remedy="train with {objective='conditional'}",
        )
    return spec, told


def _set_for(spec: FitSpec, objective: str) -> list[str]:
    """Names of the settings of one objective that differ from their defaults."""
    return [
        name
        for name, setting in SETTINGS.items()
        if setting.objective == objective and getattr(spec, name) != setting.default
    ]
