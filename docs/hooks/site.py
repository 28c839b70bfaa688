"""Hooks of mkdocs: pages outside docs/, notebooks as pages, and Markdown and docstrings as GitHub and editors read them."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md")),
    *(path for path in sorted(ROOT.glob("deploy/**/*")) if path.is_file() and path.suffix != ".pyc"),
]
"""Files beside docs/ that the site has; README.md is its first page."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in OUTSIDE:
        name = path.relative_to(ROOT).as_posix()
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    for path in sorted((ROOT / "docs" / "examples").glob("*.ipynb")):
        files.append(File.generated(config, f"examples/{path.stem}.md", content=page_of_notebook(path)))
    return files


def page_of_notebook(path: Path) -> str:
    """The cells of a notebook with their stored outputs."""
    parts = [
        part for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] for part in _of_cell(cell)
    ]
    return "\n\n".join([*parts, f'<p><a href="{path.name}" download>Download this notebook</a></p>'])


def _of_cell(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {"text/plain": output.get("text", "")})
        if "image/png" in data:
            picture = "".join(data["image/png"].split())
            yield f'<p><img alt="The figure that this cell draws" src="data:image/png;base64,{picture}"></p>'
        elif "text/html" in data:
            # Markdown ends a block of HTML at an empty line
            lines = "".join(data["text/html"]).splitlines()
            yield "<div>\n" + "\n".join(line for line in lines if line.strip()) + "\n</div>"
        else:
            yield "```text\n" + "".join(data["text/plain"]).strip("\n") + "\n```"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links between files of the repository become links of the site; lists in lists get the indent that mkdocs asks for."""
    name = page.file.src_uri
    folder = posixpath.dirname(name if ROOT / name in OUTSIDE else f"docs/{name}")

    def of_the_site(link: re.Match[str]) -> str:
        before, path, after = link.groups()
        target = posixpath.normpath(posixpath.join(folder, path)).removeprefix("docs/")
        target = re.sub(r"\.ipynb$", ".md", target)
        return before + posixpath.relpath(target, posixpath.dirname(name) or ".") + after

    parts = re.split(r"(^```.*?^```)", markdown, flags=re.DOTALL | re.MULTILINE)
    for i in range(0, len(parts), 2):  # the others are code
        links = re.sub(r"(\]\(|<img src=\")((?!\w+://|#)[\w./-]+)([^)\"]*[)\"])", of_the_site, parts[i])
        parts[i] = re.sub(r"^ {2,3}(?=- )", "    ", links, flags=re.MULTILINE)
    return "".join(parts)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """In docstrings, roles of Sphinx become links or plain names, and pages that are named become links."""
    if not page.file.src_uri.startswith("api/"):
        return html
    role = r":(?:attr|class|data|func|meth|mod):<code>"
    html = re.sub(
        rf"{role}~?(dslda\.(?:\w+\.)*(\w+))</code>",
        r'<autoref identifier="\1" optional><code>\2</code></autoref>',
        html,
    )
    html = re.sub(rf"{role}~?", "<code>", html)
    return re.sub(r"\bdocs/(\w+)\.md(#[\w-]+)?", r'<a href="../\1.html\2">\1</a>', html)
