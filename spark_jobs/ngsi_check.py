"""Spark job: cases of NGSI end to end on an HDFS (custody.spark.ngsi_check)."""

import sys

from custody.spark.ngsi_check import main

if __name__ == "__main__":
    sys.exit(main())
