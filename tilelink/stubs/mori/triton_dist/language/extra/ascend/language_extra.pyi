# Written by python -m tilelink.stubs.write from the API data: do not edit.
