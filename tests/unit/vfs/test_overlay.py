"""Folders of an image's layer, which overlayfs does not rename."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from custody.errors import StorageError
from custody.vfs import PosixFileSystem


def _filled(folder: Path) -> Path:
    (folder / "below").mkdir(parents=True)
    (folder / "a").write_bytes(b"first")
    (folder / "below" / "b").write_bytes(b"second")
    return folder


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Path]:
    """A folder on overlayfs with `image` in its lower layer."""
    layers = {name: tmp_path / name for name in ("lower", "upper", "work", "merged")}
    for folder in layers.values():
        folder.mkdir()
    _filled(layers["lower"] / "image")
    options = f"lowerdir={layers['lower']},upperdir={layers['upper']},workdir={layers['work']}"
    mounted = subprocess.run(
        ["mount", "-t", "overlay", "overlay", "-o", options, str(layers["merged"])], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this machine mounts no overlayfs")
    try:
        yield layers["merged"]
    finally:
        subprocess.run(["umount", str(layers["merged"])], check=True)


def test_a_folder_of_the_image_is_renamed(overlay: Path) -> None:
    expected = _files(overlay / "image")
    PosixFileSystem().rename(overlay / "image", overlay / "renamed")
    assert sorted(path.name for path in overlay.iterdir()) == ["renamed"]
    assert _files(overlay / "renamed") == expected


def _as_overlayfs(patch: pytest.MonkeyPatch, lower: Path) -> None:
    rename = os.rename

    def refuse_the_lower_layer(source: Path, target: Path) -> None:
        if Path(source) == lower:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(source, target)

    patch.setattr(os, "rename", refuse_the_lower_layer)


def test_a_folder_that_the_system_does_not_rename_is_moved_by_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower = _filled(tmp_path / "lower")
    expected = _files(lower)
    _as_overlayfs(monkeypatch, lower)
    PosixFileSystem().rename(lower, tmp_path / "renamed")
    assert [path.name for path in tmp_path.iterdir()] == ["renamed"]
    assert _files(tmp_path / "renamed") == expected


def test_a_move_onto_a_folder_with_files_changes_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lower, taken = _filled(tmp_path / "lower"), tmp_path / "taken"
    taken.mkdir()
    (taken / "other").touch()
    _as_overlayfs(monkeypatch, lower)
    with pytest.raises(StorageError):
        PosixFileSystem().rename(lower, taken)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lower", "taken"]
    assert sorted(_files(lower)) == ["a", "below/b"]
    assert sorted(_files(taken)) == ["other"]


def test_a_rename_to_another_device_is_refused_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    _as_overlayfs(monkeypatch, file)
    with pytest.raises(StorageError) as caught:
        PosixFileSystem().rename(file, tmp_path / "renamed")
    assert caught.value.errno == errno.EXDEV
