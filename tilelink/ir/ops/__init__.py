"""Operations of specs, a file each kind: the class, shape and placement of the result, which elements a tile of it reads."""
