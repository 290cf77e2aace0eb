"""Schedule -> source text. Spells what the schedule says; decides nothing."""

from lowering.emit import TARGETS, caveat, emit

__all__ = ["TARGETS", "caveat", "emit"]
