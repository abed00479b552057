"""Spark job: notifications that wait become files of their destinations (custody.spark.ngsi)."""

import sys

from custody.spark.ngsi import main

if __name__ == "__main__":
    sys.exit(main())
