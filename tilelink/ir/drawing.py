"""Boxes with arrows between them: as text for Graphviz, and as a picture that needs nothing else.

The picture has a column for each step from what is given: a box stands behind all that it reads, and what is given stands in
front of the first box that reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

_LETTER, _LINE, _PAD, _APART, _BELOW = 7.2, 16, 10, 70, 22  # pixels, of a monospaced font of 12


class Shape(NamedTuple):
    """`kind`: "plaintext", "box" or "ellipse"; lines of `label` are apart by a newline."""

    name: str
    label: str
    kind: str


class Arrow(NamedTuple):
    source: str
    target: str
    label: str = ""


def dot(drawn: Iterable[Shape | Arrow]) -> str:
    """Graphviz text."""
    lines = ["digraph {", "  rankdir=LR;"]
    for one in drawn:
        label = one.label.replace("\n", "\\n")
        if isinstance(one, Shape):
            lines.append(f'  "{one.name}" [shape={one.kind}, label="{label}"];')
        else:
            attributes = f' [label="{label}"]' if label else ""
            lines.append(f'  "{one.source}" -> "{one.target}"{attributes};')
    return "\n".join([*lines, "}"]) + "\n"


def svg(drawn: Iterable[Shape | Arrow]) -> str:
    """A picture in the colour of the text around it. A shape comes behind those that its arrows come from."""
    every = list(drawn)
    shapes = [one for one in every if isinstance(one, Shape)]
    arrows = [one for one in every if isinstance(one, Arrow)]
    column: dict[str, int] = {}
    for one in shapes:
        column[one.name] = max((1 + column[arrow.source] for arrow in arrows if arrow.target == one.name), default=0)
    for one in shapes:  # what is given stands in front of the first that reads it
        if one.kind == "plaintext" and (readers := [column[each.target] for each in arrows if each.source == one.name]):
            column[one.name] = max(column[one.name], min(readers) - 1)
    places = dict[str, tuple[float, float, float, float]]()  # left, top, width, height
    left = highest = 0.0
    for number in range(max(column.values(), default=-1) + 1):
        top, widest = 0.0, 0.0
        for one in (shape for shape in shapes if column[shape.name] == number):
            rows = one.label.split("\n")
            width, height = max(map(len, rows)) * _LETTER + 2 * _PAD, len(rows) * _LINE + 2 * _PAD
            places[one.name] = left, top, width, height
            top, widest = top + height + _BELOW, max(widest, width)
        left, highest = left + widest + _APART, max(highest, top - _BELOW)
    parts = [_line(arrow, places) for arrow in arrows] + [_box(shape, *places[shape.name]) for shape in shapes]
    size = f'viewBox="-2 -2 {max(left - _APART, 0) + 4:.0f} {highest + 4:.0f}" width="{max(left - _APART, 0) + 4:.0f}"'
    style = 'font-family="monospace" font-size="12" fill="none" stroke="currentColor"'
    head = (
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="currentColor" stroke="none"/></marker></defs>'
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{head}{"".join(parts)}</svg>'


def _box(shape: Shape, left: float, top: float, width: float, height: float) -> str:
    radius = {"ellipse": height / 2, "box": 2}.get(shape.kind, 0)
    frame = f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:.1f}"/>'
    rows = "".join(
        f'<text x="{left + width / 2:.1f}" y="{top + _PAD + _LINE * place + 12:.1f}" text-anchor="middle" stroke="none" '
        f'fill="currentColor">{escape(row)}</text>'
        for place, row in enumerate(shape.label.split("\n"))
    )
    return (frame if shape.kind != "plaintext" else "") + rows


def _line(arrow: Arrow, places: dict[str, tuple[float, float, float, float]]) -> str:
    left, top, width, height = places[arrow.source]
    end, above, _, high = places[arrow.target]
    begin, start, stop = left + width, top + height / 2, above + high / 2
    middle = (begin + end) / 2
    path = f"M{begin:.1f},{start:.1f} C{middle:.1f},{start:.1f} {middle:.1f},{stop:.1f} {end:.1f},{stop:.1f}"
    title = f"{arrow.source} to {arrow.target}" + (f": {arrow.label}" if arrow.label else "")
    return f'<path d="{path}" marker-end="url(#tip)"><title>{escape(title)}</title></path>'
