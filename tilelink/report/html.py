"""HTML as text: elements whose text is escaped, and tables that a screen reader can follow."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from html import escape

_EMPTY = frozenset({"br", "rect", "path", "line", "use", "meta", "col"})  # elements without content


class Html(str):
    """Text that is HTML already. Any other text is escaped where it goes into an element."""

    __slots__ = ()


def el(name: str, /, *content: str, **attributes: object) -> Html:
    """An element. `class_` is the attribute `class`, `data_row` is `data-row`. True: an attribute without a value; None: none."""
    given = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in _EMPTY and not content:
        return Html(f"<{name}{given}/>")
    return Html(f"<{name}{given}>{joined(content)}</{name}>")


def joined(content: Iterable[str]) -> Html:
    """Pieces one behind the other."""
    return Html("".join(one if isinstance(one, Html) else escape(one) for one in content))


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-") if key != "viewBox" else key
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def option(name: str, value: str) -> Html:
    """A pin as a shell takes it."""
    return el("code", f"--pin {shlex.quote(f'{name}={value}')}")


def code(text: str) -> Html:
    return el("code", text)


def link(target: str, text: str, title: str = "") -> Html:
    """A link within the page."""
    return el("a", text, href=f"#{target}", title=title or None)


def us(value: float) -> str:
    """Microseconds as the page shows them; hover has more digits, and the data have all."""
    return f"{value:,.1f} us".replace("-", "−")


def exact(value: float) -> str:
    """Microseconds to the nanosecond; the data of the page have all digits."""
    return f"{value:.3f}".rstrip("0").rstrip(".").replace("-", "−") + " us"


def percent(part: float, whole: float) -> str:
    """Nothing of nothing is 0 %."""
    return f"{100 * part / whole if whole else 0.0:.1f} %".replace("-", "−")


def timed(value: float) -> Html:
    """Microseconds, exact on hover."""
    return el("span", us(value), title=exact(value))


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = (), class_: str = ""
) -> Html:
    """A table whose first column names its rows; `numbers` are the columns that are set flush right."""
    right = frozenset(numbers)
    head = [el("th", one, scope="col", class_="number" if at in right else None) for at, one in enumerate(heads)]
    body = []
    for row in rows:
        first, *others = row
        cells = [el("th", first, scope="row", class_="number" if 0 in right else None)]
        cells += [el("td", one, class_="number" if at in right else None) for at, one in enumerate(others, 1)]
        body.append(el("tr", *cells))
    inner = el("table", el("caption", caption), el("thead", el("tr", *head)), el("tbody", *body), class_=class_ or None)
    return el("div", inner, class_="wide", tabindex=0, role="region", aria_label=caption)


def section(name: str, title: str, *content: str) -> Html:
    return el("section", el("h2", title, id=f"{name}-title"), *content, id=name, aria_labelledby=f"{name}-title")


def folded(summary: str, *content: str, open_: bool = False) -> Html:
    """What a reader opens when he wants it."""
    return el("details", el("summary", summary), *content, open=True if open_ else None)
