"""``model.report``: one page about a model, which holds all it needs."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dslda.corpus.store import Corpus, open_corpus
from dslda.exceptions import InputError, OutputExistsError, Words
from dslda.prediction.columns import check_columns
from dslda.prediction.record_counting import check_analyzer_is_ready, corpus_alignment
from dslda.report.drawing import axes_of
from dslda.report.excerpts import Marker, TextSource
from dslda.report.findings import Findings, topics_with_cards
from dslda.report.fit_sections import example_topic
from dslda.report.representative_documents import described, representatives, with_excerpts
from dslda.report.sampled_documents import sampled_documents
from dslda.report.sections import SECTIONS
from dslda.report.tfidf_rival import tfidf_rival
from dslda.storage.location import Location, check_not_in_store
from dslda.storage.output import check_writable, replace_file
from dslda.versions import __version__
from dslda.wording import number_of, printable

if TYPE_CHECKING:
    from dslda.model import Model

__all__ = ["check_page_output", "write_report"]

logger = logging.getLogger("dslda.report")

N_DOCUMENTS = 3
"""Documents on the card of a topic."""


def write_report(
    model: Model,
    out: str | os.PathLike[str],
    corpus: Corpus | str | os.PathLike[str] | None = None,
    *,
    texts: Any = None,
    excerpts: bool = True,
    realign: bool = False,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    words: Words | None = None,
    **reading: Any,
) -> str:
    """See :meth:`dslda.model.Model.report`; `words` translates references to parameters for another interface."""
    location = check_page_output(out, overwrite=overwrite, storage_options=storage_options)
    axes_of(None, width=1.0, height=1.0)  # without matplotlib the work would be in vain
    record = model.scoring_record
    source = None
    if corpus is None:
        given = [
            name for name, value in {"texts": texts, "realign": realign or None}.items() if value is not None
        ]
        if given:
            raise InputError(
                "must be left out without a corpus, whose documents it is about",
                parameter=given[0],
                remedy="name the corpus with {corpus=}",
            )
    else:
        if not isinstance(corpus, Corpus):
            corpus = open_corpus(corpus, storage_options=storage_options)
        # before the long work
        corpus_alignment(corpus, record, realign=realign)
        check_columns(corpus, record)
        if texts is not None and not excerpts:
            raise InputError("must be left out where excerpts are", parameter="texts")
        if texts is not None:
            source = TextSource(record, corpus, texts, **reading)
            check_analyzer_is_ready(record)
    if texts is None and (
        given := [name for name, value in reading.items() if value not in (None, "auto", ())]
    ):
        raise InputError(
            "is for texts, and none are given", parameter=given[0], remedy="name them with {texts=}"
        )
    findings = _found(model, corpus, source, excerpts=excerpts, realign=realign, words=words)
    page = _rendered(findings)
    # a lone surrogate of a text becomes a character that browsers show as unknown
    replace_file(location, page.encode("utf-8", "xmlcharrefreplace"), os.fspath(out))
    logger.info("report written to %s, %s kB", location.url, f"{len(page) / 1e3:,.0f}")
    return location.url


def check_page_output(
    out: str | os.PathLike[str], *, overwrite: bool, storage_options: Mapping[str, Any] | None = None
) -> Location:
    """Refuse, before any work, a page that would be lost or destroy something.

    Raises
    ------
    InputError
        It is a folder, lies in a store, or cannot be written.
    OutputExistsError
        It is there, and `overwrite` is False.
    """
    location = Location.of(out, storage_options)
    check_not_in_store(location)
    if location.local and os.path.isdir(location.url):
        raise InputError(
            "must be a file, got a folder", place=location.url, remedy="name a file in it with {out=}"
        )
    if location.local and not os.path.isdir(os.path.dirname(location.url)):
        raise InputError(
            "its folder is not there", place=location.url, remedy=("make it first", "choose another path")
        )
    fs, path = location.file_system()
    if fs.exists(path):
        if not overwrite:
            raise OutputExistsError(
                f"{location.url} is there already", remedy=("choose another path", "give {overwrite=True}")
            )
        with fs.open(path, "rb") as stream:
            is_page = stream.read(len(BEGINNING)).lower() == BEGINNING
        if not is_page:
            raise OutputExistsError(
                f"{location.url} is there and is no page, so it is never replaced",
                remedy=("choose another path", "remove it yourself"),
            )
    check_writable(location)
    return location


BEGINNING = b"<!doctype html>"


def _found(
    model: Model,
    corpus: Corpus | None,
    source: TextSource | None,
    *,
    excerpts: bool,
    realign: bool,
    words: Words | None,
) -> Findings:
    """All that the sections need."""
    shown = "texts" if source is not None else "words" if excerpts else "withheld"
    findings = Findings(model, corpus, excerpts=shown, realign=realign, words=words)
    if corpus is None:
        return findings
    record = model.scoring_record
    chosen = [topic.topic for topic in topics_with_cards(model, findings.topics)]
    findings.sample = sampled_documents(record, corpus, n_best=N_DOCUMENTS, realign=realign, topics=chosen)
    logger.info(
        "%s of %s predicted",
        f"{len(findings.sample.rows):,}",
        number_of(findings.sample.n_documents, "document"),
    )
    documents = representatives(record, corpus, findings.sample, realign=realign)
    together = [each for of_topic in documents.values() for each in of_topic]
    if (example := example_topic(findings)) is not None:
        together += described(record, corpus, findings.sample, [example], realign=realign)
    if source is not None:
        together = with_excerpts(together, source, Marker(record.text_settings))
    if example is not None:
        findings.example = together.pop()
    findings.documents = {topic: [each for each in together if each.topic == topic] for topic in chosen}
    findings.rival = tfidf_rival(record, corpus, findings.sample)
    return findings


def _rendered(findings: Findings) -> str:
    """The page."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = PackageLoader("dslda.report")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.finalize = lambda value: printable(value) if type(value) is str else value
    response = printable(findings.response)
    sections = []
    for section in SECTIONS:
        content = section.content(findings)
        if content is not None:
            title = section.title.replace("{response}", response)
            sections.append({"name": section.name, "title": title, "content": content})
    training = findings.model.training
    assert loader is not None
    style = loader.get_source(environment, "page.css")[0]
    return environment.get_template("page.html").render(
        title=f"What the words say about {response}",
        subtitle=f"{number_of(findings.model.n_topics, 'topic')}, learned from "
        f"{number_of(training.n_documents, 'document')} and {number_of(training.n_tokens, 'word')}",
        style=Markup(style),
        sections=sections,
        version=__version__,
    )
