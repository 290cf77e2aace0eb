"""Running emitted files: loading them, fabrics, torch references, results."""
