"""Gluon, in which tile loops of Hopper are emitted: groups of warps, shared memory, barriers, asynchronous products."""
