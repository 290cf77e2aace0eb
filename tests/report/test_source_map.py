"""Links from the schedule to the emitted file: exact where there is one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilelink.report.facts import Facts
from tilelink.schedule.memory import Signal
from tilelink.schedule.printing import Bound, Line, lines_of, printed_lines
from tilelink.schedule.roles import Phase
from tilelink.schedule.steps import Notify, Wait


def links(of: Facts) -> list[tuple[Line, list[str]]]:
    """Lines of the schedule with the lines that they lead to."""
    found = []
    for line, named in zip(lines_of(of.steps), lines_of(of.printed), strict=True):
        found.append((line, [of.source.lines[at - 1] for at in of.source.lines_of(named)]))
    return found


@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs", "mlp", "gather", "attention", "experts", "library"])
@pytest.mark.quick(1)
def test_a_link_leads_to_a_line_with_the_names_of_the_step(name: str, facts: Callable[[str], Facts]) -> None:
    of = facts(name)
    for line, texts in links(of):
        match line.about:
            case Wait(signal) | Notify(signal):
                around = "\n".join(of.source.lines)
                assert not texts or signal.upper() in around
            case Signal(signal):
                assert len(texts) == 1 and texts[0].startswith(f"{signal.upper()} = ")
            case Bound(bound):
                assert all(text.strip().startswith(f"{bound} = ") for text in texts)
            case Phase(title=title):
                assert all(text.strip() == f"# {title}" for text in texts)


def test_of_a_tile_loop_nearly_every_line_has_one(facts: Callable[[str], Facts]) -> None:
    found = {line.text.strip(): texts for line, texts in links(facts("ag_gemm"))}
    wait = next(texts for text, texts in found.items() if text.startswith("wait x_full_arrived"))
    assert len(wait) == 1 and wait[0].strip().startswith("wait_until(signals + X_FULL_ARRIVED")
    dot = next(texts for text, texts in found.items() if text.startswith("out = dot("))
    assert [text.strip() for text in dot] == ["out_tile = tl.dot(left, right, out_tile)"]
    assert sum(map(bool, found.values())) >= 0.8 * len(found)


def test_what_one_program_does_leads_to_what_stands_behind_its_title(facts: Callable[[str], Facts]) -> None:
    """`for step` of the last program is not the loop of that name in the sum of parts."""
    (last,) = (
        texts
        for line, texts in links(facts("gemm_rs"))
        if line.text.strip().startswith("for step")
        and line.phase is not None
        and line.phase.title.startswith("this rank")
    )
    assert last == []


@pytest.mark.slow
def test_functions_of_several_roles_are_kept_apart(facts: Callable[[str], Facts]) -> None:
    """Roles of packets bind the same names, each in a function of its own."""
    of, seen = facts("experts"), dict[int, str]()
    for line, named in zip(lines_of(of.steps), lines_of(of.printed), strict=True):
        if isinstance(line.about, Bound) and line.role is not None:
            for at in of.source.lines_of(named):
                assert seen.setdefault(at, line.role.name) == line.role.name


def test_lines_are_those_of_the_design_review(facts: Callable[[str], Facts]) -> None:
    steps = facts("mlp").steps
    assert [line.text for line in lines_of(steps)] == list(printed_lines(steps))
