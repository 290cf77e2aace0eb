"""Spec -> Schedule: expand, group, enumerate, build, verify, cost, choose."""
