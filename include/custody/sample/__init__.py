"""Room `sample`: made-up provenance for demonstrations, tests and measurements.

The same options always give the same bytes: nothing here reads a clock, a file or the network. The events tell one
consistent story, so that lineage, search and retention over them have true answers.
"""

from custody.sample.nifi import SampleOptions, sample_events, sample_files, unknown_event

__all__ = ["SampleOptions", "sample_events", "sample_files", "unknown_event"]
