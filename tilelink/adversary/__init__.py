"""Adversarial runs of emitted, edited or hand-written files on emulated ranks, and what they refute."""
