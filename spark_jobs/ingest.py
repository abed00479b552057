"""Spark job: ingest the files of events that landed in an interval of time (custody.spark.ingest)."""

import sys

from custody.spark.ingest import main

if __name__ == "__main__":
    sys.exit(main())
