"""Spark's side of custody: the Java runtime, the class archive and the command line of a submit."""
