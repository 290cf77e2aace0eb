"""What other people's kernels are written in, on emulated ranks and on stock Triton; the main line does without it.

- `dialects`: torch symmetric memory, OpenSHMEM, multimem and Triton-distributed, for kernels on emulated ranks.
- `triton_dist`: files of the dialect of Triton-distributed run as they stand, on stock Triton too.
- `check`: the functions of that dialect on GPUs, against values that are known.

`tilelink.runtime.load` installs the shim for a file of that dialect; nothing else of tilelink imports this package.
On GPUs the shim needs the extra `compat`.
"""
