"""Room `format`: the names of files, the framing of records, versions."""
