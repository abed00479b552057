"""Room `read`: from the files of the writers to events: reading, searching, SQL and time travel."""
