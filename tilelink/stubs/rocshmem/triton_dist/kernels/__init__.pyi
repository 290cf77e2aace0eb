# Written by python -m tilelink.stubs.write from the API data: do not edit.
from typing import Any

def __getattr__(name: str) -> Any: ...
