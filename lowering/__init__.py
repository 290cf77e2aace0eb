"""Schedule -> source text. Spells what the schedule says; decides nothing."""

from lowering.emit import TARGETS, emit

__all__ = ["TARGETS", "emit"]
