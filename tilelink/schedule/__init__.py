"""The language of schedules: roles run phases of steps on regions of buffers, ordered by signals."""
