"""The checked-in protobuf classes are what the checked-in `.proto` gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import custody.catalog

FOLDER = Path(custody.catalog.__file__).parent


@pytest.mark.parametrize("name", ["transaction_pb2.py", "transaction_pb2.pyi"])
def test_generated_classes_are_not_stale(name: str, tmp_path: Path) -> None:
    include = FOLDER.parents[1]
    options = [f"-I{include}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    proto = "custody/catalog/transaction.proto"
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options, proto], check=True)
    assert (tmp_path / "custody" / "catalog" / name).read_text() == (FOLDER / name).read_text(), "run: make proto"
