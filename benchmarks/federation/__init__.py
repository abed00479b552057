"""Benchmark: one reader over many writers."""
