"""Sentences of a Markdown page: what is read, without code, tables, headings and pictures."""

from __future__ import annotations

import re

_LEFT_OUT = (
    re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL),
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"^\|.*$", re.MULTILINE),
    re.compile(r"^#+ .*$", re.MULTILINE),
    re.compile(r"!\[[^\]]*\]\([^)]*\)"),
)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_CODE = re.compile(r"`[^`\n]+`")
_ITEM = re.compile(r"\n\s*(?:[-*]|\d+\.) ")
_END = re.compile(r"(?<=[.?!])[*)]*\s+")


def prose(page: str) -> str:
    """The text that is left, each inline code one word."""
    for pattern in _LEFT_OUT:
        page = pattern.sub("", page)
    return _CODE.sub("code", _LINK.sub(r"\1", page))


def sentences(page: str) -> list[list[str]]:
    """The words of each sentence; an item of a list begins a new one."""
    blocks = [block for part in prose(page).split("\n\n") for block in _ITEM.split("\n" + part)]
    found = [re.findall(r"[^\W_][\w’'.,-]*", text) for block in blocks for text in _END.split(" ".join(block.split()))]
    return [words for words in found if words]
