"""Device helpers: hand-written `@triton.jit` functions that emitted files embed. The memory-order rules live here, once."""
