"""The conformance cases of the NGSI sink: what it must write, and the programs that check it."""
