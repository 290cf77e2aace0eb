"""Ways to do the same, measured side by side on all ranks: each is checked, and timed in turns with all others."""
