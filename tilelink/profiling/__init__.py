"""What each program of a call does when, on GPUs: stamps in the emitted kernels, and clocks of ranks that are compared."""
