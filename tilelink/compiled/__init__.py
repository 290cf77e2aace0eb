"""What the compiler makes of emitted kernels: do its loads, waits, stores and notifies keep the order of the source?"""

from tilelink.compiled.check import CompiledReport, check_compiled

__all__ = ["CompiledReport", "check_compiled"]
