"""The dialect of Triton-distributed on GPUs of one node: `torchrun -m tilelink.compat.check`."""
