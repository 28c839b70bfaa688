"""Links of Markdown pages to files of the repository and to headings, as GitHub reads them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

__all__ = ["broken_links", "leads_somewhere"]


def broken_links(page: Path) -> list[str]:
    """Links and images of a page that lead to no file, or to no heading of it; addresses of the web are not followed."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"<img src=\"([^\"]+)\"", text)
    return [
        target
        for target in targets
        if "://" not in target
        and not leads_somewhere(page.parent, f"{page.name}{target}" if target.startswith("#") else target)
    ]


def leads_somewhere(folder: Path, target: str) -> bool:
    """Whether a path, relative to a folder, is that of a file with the heading behind its ``#``, if it has one."""
    path, _, heading = target.partition("#")
    found = folder / path
    return found.is_file() and (not heading or heading in _headings(found))


@cache
def _headings(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
