"""What the user declared (Spec), what depends on what (TileGraph), what was decided (Schedule)."""
