"""Writing a Whoosh segment with arrays: one module a structure of the format (docs/formats/whoosh-segment.md)."""
