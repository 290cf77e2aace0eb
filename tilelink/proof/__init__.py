"""Proof of schedules: coverage, progress, signals, reuse and fabric, for every rank and every interleaving."""
