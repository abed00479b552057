"""Build hook: makes the catalog's protobuf classes from the checked-in `.proto`.

Run by every build, editable ones included. By hand: `python include/hatch_build.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grpc_tools import protoc  # type: ignore[import-untyped,unused-ignore]
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROTO = "custody/catalog/transaction.proto"


def generate(include: Path) -> None:
    """Write `transaction_pb2.py` and its type stub beside the `.proto`; raises on a compiler error."""
    code = protoc.main(
        ["protoc", f"-I{include}", f"--python_out={include}", f"--pyi_out={include}", PROTO]
    )
    if code != 0:
        raise RuntimeError(f"protoc failed with exit code {code} on {include / PROTO}")


class ProtobufBuildHook(BuildHookInterface):  # type: ignore[type-arg,unused-ignore]
    """Generates the classes before files are collected for a wheel or an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Hatchling's entry point."""
        generate(Path(self.root) / "include")


if __name__ == "__main__":
    generate(Path(__file__).resolve().parent)
