"""custody: a provenance repository for data pipelines."""
