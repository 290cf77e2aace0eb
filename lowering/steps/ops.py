"""Ops of tiles as kernel text; a schedule may define more in its `functions`."""

from __future__ import annotations

from collections.abc import Sequence

from lowering.embed import defined
from lowering.steps.errors import UnknownOpOfSteps
from tilelink.errors import did_you_mean
from tilelink.ir.dtype import DTYPES
from tilelink.ir.ops.elementwise import FUNCTIONS
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import Compute

_TEXTS = {
    "zeros": "tl.zeros({shape}, tl.float32)",
    "full": "tl.full({shape}, {0}, tl.float32)",
    "dot": "tl.dot({0}, {1}, {2}{precision})",
    "copy": "{0}",
    **{f"in_{name}": f"{{0}}.to(tl.{row.triton})" for name, row in DTYPES.items()},
    "combined": "add_weighted({0}, {1}, {2}, {3}, {4}, {5})",
    "attend": "take_keys({0}, {1}, {2}, {3}, {4}, {5}, {6}, {7})",
    "attend_some": "take_seen_keys({0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10})",
    "attend_between": "take_keys_between({0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9})",
    "log_of_weights": "log_of_weights({0}, {1})",
    "in_base_2": "in_base_2({0})",
    "in_base_e": "in_base_e({0})",
    "merge_state": "merge_state({0}, {1}, {2}, {3}, {4})",
    "attended": "mean_of_values({0}, {1})",
    "trans": "tl.trans({0})",
    "as_row": "{0}[None, :]",
    "halves": "halves({0})",
}


def op_text(schedule: Schedule, role: str, step: Compute, operands: Sequence[str], shape: str, exact: bool) -> str:
    """The call of an op on `operands`, as text. `exact`: of products of operands in fp32. Raises UnknownOpOfSteps."""
    functions = defined(schedule.functions)
    if step.op in functions:
        return f"{step.op}({', '.join(operands)})"
    texts = _TEXTS | {name: function.text for name, function in FUNCTIONS.items()}
    if step.op not in texts:
        known = [*texts, *functions]
        raise UnknownOpOfSteps(
            op=step.op, role=role, schedule=schedule.name, hint=did_you_mean(step.op, known), known=", ".join(known)
        )
    precision = ', input_precision="ieee"' if exact else ""
    return texts[step.op].format(*operands, shape=shape, precision=precision)
