"""Room `ingest`: files of other systems become acknowledged events, each once."""
