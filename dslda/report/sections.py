"""The sections of a report, in their order: each takes the findings and returns what its template shows, or None."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dslda.report import fit_sections, model_sections, topic_sections
from dslda.report.findings import Findings

__all__ = ["SECTIONS", "Section"]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page.

    Attributes
    ----------
    name : str
        Its anchor, and the name of its template, ``<name>.html``.
    title : str
        Its heading; ``{response}`` stands for the name of the response.
    content : callable
        The variables of the template; None leaves the section out.
    """

    name: str
    title: str
    content: Callable[[Findings], Mapping[str, Any] | None]


SECTIONS = (
    Section("answer", "In short", topic_sections.answer),
    Section("axis", "The topics, by what they do to {response}", topic_sections.axis),
    Section("map", "The topics, by the classes of {response}", topic_sections.class_map),
    Section("caution", "How far to trust this", model_sections.caution),
    Section("topics", "Each topic, with its documents", topic_sections.cards),
    Section("example", "How one prediction comes about", fit_sections.example),
    Section("beyond", "Words beyond the topics", model_sections.beyond),
    Section("predictions", "Predictions and what was observed", fit_sections.predictions),
    Section("training", "How training ended", model_sections.training),
    Section("facts", "Data, settings and versions", model_sections.facts),
)
"""To add a section, write its function and its template, and name both here."""
