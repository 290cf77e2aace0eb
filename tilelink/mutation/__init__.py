"""Mutation testing: schedules and emitted source with one thing wrong, and who notices."""
