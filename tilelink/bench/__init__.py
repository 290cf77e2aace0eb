"""Benchmarks on GPUs: ours and what a user would pick instead, in one process group, interleaved, with every sample kept."""
