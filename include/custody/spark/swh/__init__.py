"""The provenance tables of Software Heritage on Spark DataFrames: one module a kind of walk over the graph."""
