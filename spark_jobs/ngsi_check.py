"""Spark job: run the conformance cases of NGSI end to end on an HDFS (custody_conformance.job)."""

import sys

from custody_conformance.job import main

if __name__ == "__main__":
    sys.exit(main())
