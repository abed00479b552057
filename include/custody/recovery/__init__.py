"""Room `recovery`: what interrupted work left on disk, found by what lies there alone, and taken care of."""
