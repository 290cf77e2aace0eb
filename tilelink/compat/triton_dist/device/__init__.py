"""The functions that kernels of the dialect call, compiled by stock Triton: inline assembly and Triton's own operations."""
