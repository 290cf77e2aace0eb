"""Device helpers: hand-written `@triton.jit` functions that emitted files embed. The rules of memory order live here, once."""
