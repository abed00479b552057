"""The checked-in protobuf classes are what the checked-in `.proto` gives, and run on old and new protobufs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

import custody.catalog
from custody.catalog import transaction_pb2
from custody.serving import provenance_pb2

INCLUDE = Path(custody.catalog.__file__).parents[2]
MODULES = pytest.mark.parametrize("module", [transaction_pb2, provenance_pb2], ids=["transaction", "provenance"])


@MODULES
def test_generated_classes_are_not_stale(module: object, tmp_path: Path) -> None:
    described: FileDescriptor = module.DESCRIPTOR  # type: ignore[attr-defined]
    out = tmp_path / "described"
    options = [f"-I{INCLUDE}", f"--descriptor_set_out={out}", described.name]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options], check=True)
    [fresh] = FileDescriptorSet.FromString(out.read_bytes()).file
    checked_in = FileDescriptorProto.FromString(described.serialized_pb)
    # The JSON names follow from the names; only protoc writes them down.
    for message in fresh.message_type:
        _drop_json_names(message)
    for message in checked_in.message_type:
        _drop_json_names(message)
    assert checked_in == fresh, "run: make proto"


def _drop_json_names(message: object) -> None:
    for field in message.field:  # type: ignore[attr-defined]
        field.ClearField("json_name")
    for nested in message.nested_type:  # type: ignore[attr-defined]
        _drop_json_names(nested)


@MODULES
def test_generated_classes_ask_no_protobuf_for_its_version(module: object) -> None:
    """Those of a newer protoc refuse each protobuf before it, and other packages ask for one."""
    source = Path(module.__file__ or "").read_text(encoding="utf-8")  # type: ignore[attr-defined]
    assert "runtime_version" not in source
