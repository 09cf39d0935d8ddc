# SPDX-License-Identifier: Apache-2.0
"""Fragments of HTML for notebooks: what ``_repr_html_`` methods are made of.

No script, nothing from outside, no colours of text or ground, so that they are readable on any theme. Every text is
escaped, unless a function of this file made it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["MOST_ROWS", "Markup", "code", "facts", "fragment", "prose", "sentences", "table", "text"]

WIDEST = 96  # characters of a name; longer ones are cut in the middle, where names differ least
WIDEST_SENTENCE = 1200
MOST_ROWS = 10
MOST_SENTENCES = 5

# The mark at the left edge, seen on white and on black; "" judges nothing.
_COLOURS = {"good": "#2e9e5b", "bad": "#e0454b", "open": "#c98a1b", "": "#8a8f98"}
_LEFT = 'style="text-align:left"'  # notebooks align cells to the right

# What a terminal obeys, and what turns the direction of writing: as base/text.cpp has them.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Markup(str):
    """Text that is HTML already."""


def text(value: Any, widest: int = WIDEST) -> Markup:
    """Returns a value as text that a browser shows and never obeys: of a number four digits, nothing for None.

    What is longer than `widest` characters is cut, and has all of it as its title.
    """
    if isinstance(value, Markup):
        return value
    plain = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    # A name need not be UTF-8, and its half surrogates must not reach the notebook's file.
    plain = plain.encode("utf-8", "backslashreplace").decode("utf-8")
    plain = _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), plain)
    if len(plain) <= widest:
        return Markup(html.escape(plain))
    head, tail = plain[: widest // 2], plain[-(widest // 2 - 1) :]
    return Markup(f'<span title="{html.escape(plain)}">{html.escape(head)}&hellip;{html.escape(tail)}</span>')


def prose(value: Any) -> Markup:
    """Returns a sentence as text; nothing for None."""
    return text(value, WIDEST_SENTENCE)


def code(value: Any) -> Markup:
    """Returns a name, path or command in the letters of programs; nothing for an empty one."""
    return Markup(f"<code>{text(value)}</code>" if value else "")


def facts(pairs: Iterable[tuple[str, Any]]) -> Markup:
    """Returns two columns, what and its value; what has no value is left out."""
    rows = [
        f'<tr><th scope="row" {_LEFT}>{text(name)}</th><td {_LEFT}>{text(value)}</td></tr>'
        for name, value in pairs
        if value not in (None, "")
    ]
    return Markup(f"<table><tbody>{''.join(rows)}</tbody></table>" if rows else "")


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Any]], total: int) -> Markup:
    """Returns a table of the first of `total` rows, without the columns that are empty; nothing without rows."""
    if not rows:
        return Markup()
    more = f", {len(rows)} of {total:,}" if total > len(rows) else ""
    filled = [column for column in range(len(heads)) if any(row[column] not in (None, "") for row in rows)]
    head = "".join(f'<th scope="col" {_LEFT}>{text(heads[column])}</th>' for column in filled)
    body = "".join(f"<tr>{''.join(f'<td {_LEFT}>{text(row[column])}</td>' for column in filled)}</tr>" for row in rows)
    return Markup(
        f"<table><caption {_LEFT}>{text(caption)}{more}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def sentences(title: str, given: Sequence[str]) -> Markup:
    """Returns the first of some sentences as a list with a title; nothing for none."""
    if not given:
        return Markup()
    shown = [f"<li>{prose(sentence)}</li>" for sentence in given[:MOST_SENTENCES]]
    if len(given) > MOST_SENTENCES:
        shown.append(f"<li>and {len(given) - MOST_SENTENCES:,} more</li>")
    return Markup(f"<p>{text(title)}</p><ul>{''.join(shown)}</ul>")


def fragment(title: str, sentence: Any, *parts: Markup, tone: str = "") -> str:
    """Returns the whole: a title, the sentence that says most, and tables below it.

    Args:
        title: what it is: ``"Comparison"``.
        sentence: in words; nothing is told by colour alone.
        parts: made by the other functions.
        tone: ``"good"``, ``"bad"``, ``"open"`` or ``""``: colour of the mark at the edge.
    """
    edge = f"border-left:4px solid {_COLOURS[tone]};padding-left:0.8em;overflow-x:auto;overflow-wrap:break-word"
    head = f"<p>{text(title)}: <strong>{prose(sentence)}</strong></p>"
    return f'<div style="{edge}">{head}{"".join(parts)}</div>'
