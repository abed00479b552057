"""Spark job: write waiting notifications to the files of their destinations (custody.spark.ngsi)."""

import sys

from custody.spark.ngsi import main

if __name__ == "__main__":
    sys.exit(main())
