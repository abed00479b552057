"""Room `read`: events from the files of the writers, by reading, searching, SQL and time travel."""
