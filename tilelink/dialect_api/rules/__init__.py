"""The rules, one file a family. Each has a `check`, a generator of findings over a `Context`."""
