"""Which target the parameters choose; the one function that whoever runs a sink calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from custody.errors import ConfigurationError
from custody.ngsi.local import LocalFiles
from custody.ngsi.parameters import Parameters
from custody.ngsi.rest import RestFiles
from custody.ngsi.target import Files, FilesTarget, Target
from custody.vfs import FileSystem

Rpc = TypeVar("Rpc", bound=Files)


def open_target(
    parameters: Parameters, fs: FileSystem, repository: Path, *, rpc: Callable[[Parameters], Files] | None = None
) -> Target:
    """Return where files of destinations go; close it in the end.

    Args:
        parameters: `ngsi.backend` chooses.
        fs: of backend `file`.
        repository: the folder that a relative `ngsi.backend_folder` lies in.
        rpc: makes the files of backend `binary`: `custody.spark.hdfs.rpc_files(session)`, for its client is Spark's.

    Raises:
        ConfigurationError: the backend cannot be had here.
    """
    return FilesTarget(open_files(parameters, fs, repository, rpc=rpc))


def open_files(
    parameters: Parameters, fs: FileSystem, repository: Path, *, rpc: Callable[[Parameters], Rpc] | None = None
) -> LocalFiles | RestFiles | Rpc:
    """Return the file system that a target is on; arguments and errors as of `open_target`."""
    values = parameters.values
    if values.backend == "file":
        return LocalFiles(fs, (repository / values.backend_folder).absolute())
    if values.backend == "binary":
        if rpc is None:
            raise ConfigurationError(
                "ngsi.backend binary: expected a Spark session, whose client of HDFS it uses, got none. "
                "Run the Spark job ngsi_to_hdfs, or set ngsi.backend to rest."
            )
        return rpc(parameters)
    return RestFiles.open(parameters)
