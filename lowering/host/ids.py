"""Ids of routings that are no expert's: the device counts them, and an operator raises them when it is asked."""

from __future__ import annotations

import torch


class IllegalIds(ValueError):
    """Calls so far had ids that are no expert's, and not -1. They have chosen no expert."""


def check_ids(name: str, wrong: torch.Tensor, experts: int) -> None:
    """Waits for the device. Raises IllegalIds if `wrong` has counted any."""
    count = int(wrong.item())
    if count:
        raise IllegalIds(
            f"{name}: {count} ids of calls so far are outside of -1 to {experts - 1}; they have chosen no expert"
        )
