"""Figures of matplotlib as SVG inside a page: text as text, a title for those who do not see them, the page's colours."""

from __future__ import annotations

import io
import re
import warnings
from typing import Any
from xml.etree import ElementTree

from dslda.report.drawing import HIGHER, INK, LOWER, MUTED, PAPER, RULE

__all__ = ["inline_svg"]

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    RULE: "--rule",
    PAPER: "--paper",
    LOWER: "--lower",
    HIGHER: "--higher",
}
"""The colours that follow the page, light or dark."""
PIXELS = 4.0 / 3.0
"""Of a point."""
DIGITS = re.compile(r"-?\d+\.\d{3,}")
ElementTree.register_namespace("", SVG)
RC = {
    "svg.fonttype": "none",
    "svg.hashsalt": "dslda",
    "font.size": 9,
    "axes.labelsize": 9,
    "text.usetex": False,
    "axes.unicode_minus": True,
}


def inline_svg(axes: Any, *, key: str, title: str, description: str) -> str:
    """The figure of some axes as an ``<svg>`` element.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
    key : str
        Unique on the page: the beginning of all ids.
    title, description : str
        What the figure is, and what it says.
    """
    # a tree escapes whatever words hold
    tree = ElementTree.fromstring(_drawn(axes))
    for parent in list(tree.iter()):
        for child in [c for c in parent if c.tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}style")]:
            parent.remove(child)
    referenced = set()
    for element in tree.iter():
        for name, value in element.attrib.items():
            if name == f"{{{XLINK}}}href":
                referenced.add(value.removeprefix("#"))
            referenced.update(re.findall(r"url\(#([^)]+)\)", value))
    for element in tree.iter():
        _mend(element, key, referenced)
    width, height = tree.get("width", ""), tree.get("height", "")
    for name in ("width", "height", "version"):
        tree.attrib.pop(name, None)
    tree.set("role", "img")
    tree.set("aria-labelledby", f"{key}-title {key}-description")
    # no larger than it is drawn, for its text would be larger than the page's
    across, up = _points(width), _points(height)
    tree.set("style", f"--natural: {across * PIXELS:.0f}px; aspect-ratio: {across} / {up}")
    for position, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(
            f"{{{SVG}}}{tag}", {"id": f"{key}-{tag.replace('desc', 'description')}"}
        )
        element.text = text
        tree.insert(position, element)
    return ElementTree.tostring(tree, encoding="unicode")


def _drawn(axes: Any) -> bytes:
    import matplotlib

    figure = axes.figure
    figure.patch.set_alpha(0.0)
    axes.patch.set_alpha(0.0)
    stream = io.BytesIO()
    # neither the user's settings nor glyphs that the font of the measurements lacks: browsers have their own fonts
    with matplotlib.rc_context(RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        warnings.filterwarnings("ignore", message="constrained_layout not applied")
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return stream.getvalue()


def _mend(element: ElementTree.Element, key: str, referenced: set[str]) -> None:
    """Exchange colours and fonts, drop ids that nothing refers to, and shorten numbers."""
    own = element.attrib.pop("id", None)
    if own in referenced:
        element.set("id", f"{key}-{own}")
    for name, value in list(element.attrib.items()):
        if name == f"{{{XLINK}}}href":
            # plain href: browsers know it, and XML namespaces are none of HTML's
            del element.attrib[name]
            element.set("href", f"#{key}-{value.removeprefix('#')}")
        elif name == "style":
            for colour, variable in VARIABLES.items():
                value = value.replace(colour, f"var({variable})")
            value = re.sub(r"#0{6}\b", "var(--ink)", value)
            value = re.sub(r"font-family: [^;]*(; )?", "", value)
            element.set("style", re.sub(r"url\(#", f"url(#{key}-", value))
        else:
            value = re.sub(r"url\(#", f"url(#{key}-", value)
            if name in ("d", "x", "y", "transform", "points"):
                value = DIGITS.sub(lambda number: f"{float(number[0]):.2f}", value)
            element.set(name, value)


def _points(length: str) -> float:
    return float(length.removesuffix("pt") or 1.0)
