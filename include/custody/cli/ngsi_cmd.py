"""`custody ngsi`: notifications of context brokers on their way to HDFS and Hive."""

from __future__ import annotations

import click

from custody.cli.ngsi_serve_cmd import serve


@click.group()
def ngsi() -> None:
    """Take notifications of context brokers to HDFS and Hive."""


ngsi.add_command(serve)
