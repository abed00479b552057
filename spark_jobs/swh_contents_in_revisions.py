"""Spark job: the step `swh_contents_in_revisions` of a build of provenance tables (custody.spark.swh)."""

import sys

from custody.spark.swh.steps import main

if __name__ == "__main__":
    sys.exit(main(["swh_contents_in_revisions"]))
