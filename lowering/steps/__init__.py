"""The one printer of steps: passes over a schedule, then its kernels as Triton text and its host operations as a class."""
