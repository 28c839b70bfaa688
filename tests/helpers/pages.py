"""Pages in HTML, read as a browser without a network would read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

__all__ = ["Page", "read_page"]

VOID = frozenset({"meta", "br", "link", "img", "input", "hr"})
LOADING = frozenset(
    {"script", "link", "img", "iframe", "object", "embed", "image", "foreignobject", "base", "form"}
)
"""Elements that run, fetch or send something."""


@dataclass
class Element:
    """An element with its attributes, and all text in it."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """The elements of a page in their order; wrong nesting is an error."""

    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop().tag == tag, (tag, self.getpos())

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data

    def all(self, tag: str, class_name: str | None = None) -> list[Element]:
        """The elements of a tag, and of a class."""
        return [
            e
            for e in self.elements
            if e.tag == tag and (class_name is None or class_name in e.attributes.get("class", "").split())
        ]

    def by_id(self, key: str) -> Element:
        """The element with this id."""
        (found,) = (e for e in self.elements if e.attributes.get("id") == key)
        return found

    @property
    def text(self) -> str:
        """All text, with single blanks."""
        return " ".join(self.all("body")[0].text.split())


def read_page(path: Path) -> Page:
    """Read a page; assert that it is well formed, needs nothing else, and can be used without seeing or pointing."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    assert not page.open
    assert page.all("html")[0].attributes["lang"] == "en"
    assert not [e.tag for e in page.elements if e.tag in LOADING]
    ids = [e.attributes["id"] for e in page.elements if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    for element in page.elements:
        for name, value in element.attributes.items():
            assert not name.startswith("on"), (element.tag, name)
            if name in ("href", "xlink:href", "src"):
                assert value.startswith("#"), value
                assert value[1:] in ids, value
            if name in ("aria-labelledby", "aria-describedby"):
                assert set(value.split()) <= set(ids), value
            assert "url(http" not in value
    for figure in page.all("svg"):
        assert figure.attributes["role"] == "img"
        title, description = (page.by_id(key) for key in figure.attributes["aria-labelledby"].split())
        assert title.text.strip()
        assert description.text.strip()
    levels = [int(e.tag[1]) for e in page.elements if e.tag in ("h1", "h2", "h3", "h4")]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels)), levels
    return page
