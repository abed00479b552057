"""One small repository, made once, copied for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.unit.maintenance.damaged_samples import Sample, build


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole") / "repository"
    build(root)
    return root


@pytest.fixture
def sample(whole: Path, tmp_path: Path) -> Sample:
    shutil.copytree(whole, tmp_path / "copy")
    return Sample(tmp_path / "copy")
