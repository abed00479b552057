"""Folders for the files of benchmarks, and the environment of those peers that custody does not depend on."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCAL = ROOT / ".local" / "benchmarks"
_GET_FLAGS, _SET_FLAGS, _TOP_OF_HIERARCHIES = 0x8008_6601, 0x4008_6602, 0x2_0000
"""Of `ioctl_iflags(2)`: the two requests on 64 bits, and `FS_TOPDIR_FL`."""
_REQUIREMENTS = Path(__file__).with_name("catalog") / "requirements.txt"


def library_path() -> str:
    """Return a PYTHONPATH for processes that measure: these benchmarks, and the library that this process uses.

    Not always the library beside them: `benchmarks.turns` measures an earlier one.
    """
    import custody  # not at the top: the Pythons of peers have none

    return os.pathsep.join([str(ROOT), str(Path(custody.__file__).resolve().parents[1])])


def set_apart(folder: Path) -> None:
    """Let ext4 put each folder that is made in this one somewhere else on the disk, away from what was deleted lately.

    As it does for those of its root: by a hash of the name, so names must differ from run to run. Other file systems,
    which have no such flag, stay as they are.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    flags = bytearray(8)
    try:
        fcntl.ioctl(descriptor, _GET_FLAGS, flags)
        wanted = int.from_bytes(flags, sys.byteorder) | _TOP_OF_HIERARCHIES
        fcntl.ioctl(descriptor, _SET_FLAGS, wanted.to_bytes(8, sys.byteorder))
    except OSError:
        pass
    finally:
        os.close(descriptor)


def peers_python(requirements: Path = _REQUIREMENTS) -> Path:
    """Return the Python of the environment of a folder's peers; make it when its requirements changed.

    Raises:
        subprocess.CalledProcessError: it could not be made, for example without a network.
    """
    folder = LOCAL / f"{requirements.parent.name}-peers"
    stamp, python = folder / "made-from", folder / "bin" / "python"
    if not (stamp.exists() and stamp.read_bytes() == requirements.read_bytes()):
        shutil.rmtree(folder, ignore_errors=True)
        uv = str(ROOT / ".ci" / "uv")
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
        install = [uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(requirements)]
        subprocess.run(install, check=True)
        stamp.write_bytes(requirements.read_bytes())
    return python
