"""What a notebook shows of an object: heading, facts and table, in the notebook's own colours, with all contents escaped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from dslda.wording import printable

__all__ = ["notebook_card"]

# inline styles: notebooks that are not trusted, and sites that show them, drop <style>; no colour but that of the text
# around it, so that it can be read on light and on dark
_TEMPLATE = """\
{%- set line = "border-bottom:1px solid rgba(128,128,128,0.35)" -%}
<div style="overflow-x:auto;color:inherit">
<p style="margin:0 0 0.4em 0"><strong>{{ heading }}</strong></p>
{%- for name, value in facts %}
<p style="margin:0"><span style="opacity:0.75">{{ name }}:</span> {{ value }}</p>
{%- endfor %}
{%- if rows %}
<table style="margin:0.6em 0;border-collapse:collapse;color:inherit">
<thead><tr>
{%- for name in columns %}
<th scope="col" style="text-align:{{ "left" if name in texts else "right" }};padding:0.2em 0.7em;{{ line }}">{{ name }}</th>
{%- endfor %}
</tr></thead>
<tbody>
{%- for row in rows %}
<tr>
{%- for name, cell in zip(columns, row, strict=True) %}
<td style="text-align:{{ "left" if name in texts else "right" }};padding:0.2em 0.7em;{{ line }}">{{ cell }}</td>
{%- endfor %}
</tr>
{%- endfor %}
</tbody></table>
{%- endif %}
{%- for note in notes %}
<p style="margin:0">{{ note }}</p>
{%- endfor %}
</div>"""


def notebook_card(
    heading: str,
    *,
    facts: Iterable[tuple[str, str]] = (),
    columns: Sequence[str] = (),
    rows: Sequence[Sequence[str]] = (),
    texts: Collection[str] = (),
    notes: Iterable[str] = (),
) -> str:
    """The HTML of an object, for its ``_repr_html_``.

    Parameters
    ----------
    heading : str
    facts : iterable of (name, value)
        A line each.
    columns : sequence of str
        Heads of the table.
    rows : sequence of sequence of str
        Its cells; no table where there are none.
    texts : collection of str
        Columns that read from the left; the others are figures.
    notes : iterable of str
        Sentences below the table.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.finalize = _finalized
    return environment.from_string(_TEMPLATE, globals={"zip": zip}).render(
        heading=heading, facts=facts, columns=columns, rows=rows, texts=texts, notes=notes
    )


def _finalized(value: Any) -> Any:
    # Markup, the template's own text, is a subclass
    return printable(value) if type(value) is str else value
