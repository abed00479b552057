"""Room `cli`: the command `custody`, one file a command."""
