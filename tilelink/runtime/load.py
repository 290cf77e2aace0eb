"""Emitted source -> module object, with its text where tracebacks and the Triton compiler look for it."""

from __future__ import annotations

import hashlib
import linecache
import os
import re
import tempfile
from pathlib import Path
from types import ModuleType

_FOLDER = "tilelink-emitted"
SHIM = "tilelink.compat.triton_dist"  # run in front of a script; installed below. The main line knows no more of tilelink.compat
_DIALECT = re.compile(r"^(import|from) triton_dist\b", re.MULTILINE)


def load_source(source: str, name: str, path: Path | None = None) -> ModuleType:
    """Import `source` as a module called `name`. Triton reads the text of kernels from a file, so one is written to the
    temporary folder, named after its content, unless `source` is the text of the file `path`. A file in the dialect of
    Triton-distributed finds the shim where the real package is not installed."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    if path is None:
        folder = Path(tempfile.gettempdir()) / _FOLDER
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}_{digest}.py"
        if not path.exists():
            partial = folder / f"{path.name}.{os.getpid()}.part"
            partial.write_text(source)
            partial.replace(path)
    module = ModuleType(f"{name}_{digest}")
    module.__file__ = str(path)
    linecache.checkcache(str(path))
    if in_dialect(source):
        from tilelink.compat.triton_dist import install  # it needs Triton, which other files may do without

        install()
    if "nvshmemx_" in source:
        from tilelink.compat.dialects import nvshmem

        nvshmem.install()
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def in_dialect(source: str) -> bool:
    """Whether `source` is written in the dialect of Triton-distributed."""
    return _DIALECT.search(source) is not None


def operator_class(module: ModuleType) -> type:
    """The host class of an emitted module: the one class that declares INPUTS."""
    return next(value for value in vars(module).values() if isinstance(value, type) and hasattr(value, "INPUTS"))


def fabric_class(module: ModuleType) -> type:
    """What the operator of an emitted module stands on when it runs on GPUs: of classes with a method `symmetric` the one that
    no other one derives from."""
    found = [value for value in vars(module).values() if isinstance(value, type) and hasattr(value, "symmetric")]
    return next(one for one in found if not any(one in other.__mro__[1:] for other in found))
