"""The provenance tables of Software Heritage on Spark: the steps of a build, by joins or in arrays, and their walks."""
