"""The host side of the dialect, on GPUs and on emulated ranks."""
