"""`custody sample`: realistic events to try things with."""

from __future__ import annotations

from pathlib import Path

import click

from custody.sample import SampleOptions, sample_files
from custody.vfs import PosixFileSystem


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--events", "-n", type=click.IntRange(min=1), default=5000, show_default=True, help="Events to make.")
@click.option(
    "--seed", type=int, default=7, show_default=True, help="Same seed, same events; another seed, other nodes."
)
@click.option("--nodes", type=click.IntRange(min=1), default=2, show_default=True, help="NiFi nodes that report.")
def sample(folder: Path, events: int, seed: int, nodes: int) -> None:
    """Write files of simulated NiFi provenance events into FOLDER.

    \b
    Example:
      custody sample landing --events 10000
    """
    fs = PosixFileSystem()
    fs.make_directory(folder.resolve())
    files = 0
    for name, data in sample_files(SampleOptions(events=events, seed=seed, nodes=nodes)):
        fs.write_durably(folder / name, data)
        files += 1
    click.echo(f"wrote {events} events in {files} files to {folder}", err=True)
