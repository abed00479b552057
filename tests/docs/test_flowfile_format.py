"""The page of the FlowFile repository's format says what the code writes."""

from __future__ import annotations

import msgspec
import pytest

from custody.flow import FlowFile
from custody.flowfile_repository import records
from custody.flowfile_repository.records import (
    FileHeader,
    Leave,
    Move,
    SnapshotSummary,
    SwapBlock,
    SwapFile,
    Take,
    Transaction,
    Waiting,
    encode_flowfiles,
    encode_transaction,
    head,
)
from custody.flowfile_repository.swap import BLOCK_FLOWFILES
from tests.docs.pages import examples, hex_bytes, read, section, table

PAGE = read("formats/flowfile-repository.md")
TIME = 1_772_359_200_000


def _names(struct: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(struct)]


def _example(name: str) -> bytes:
    return hex_bytes(examples(PAGE)[name])


def test_each_kind_of_record_has_its_number() -> None:
    kinds = {
        "header": records.KIND_HEADER,
        "transaction": records.KIND_TRANSACTION,
        "end of log": records.KIND_END_OF_LOG,
        "FlowFiles": records.KIND_FLOWFILES,
        "summary": records.KIND_SUMMARY,
    }
    assert {row[1]: int(row[0]) for row in table(PAGE, "kind | name")} == kinds


def test_each_kind_of_file_has_its_letters() -> None:
    for preamble in (records.LOG_PREAMBLE, records.SNAPSHOT_PREAMBLE, records.SWAP_PREAMBLE):
        assert f"`{preamble[:7].decode()}`" in PAGE
        assert preamble[7] == 1


@pytest.mark.parametrize(
    ("heading", "columns", "struct"),
    [
        ("## Layout", "key | type", FileHeader),
        ("### Transaction", "field | type", Transaction),
        ("### Waiting", "field | type", Waiting),
        ("### SwapFile", "field | type", SwapFile),
        ("### SwapBlock", "field | type", SwapBlock),
        ("### Snapshot summary", "key | type", SnapshotSummary),
    ],
)
def test_every_field_is_in_its_table_in_its_order(heading: str, columns: str, struct: type[msgspec.Struct]) -> None:
    under = section(PAGE, heading).partition("\n### ")[0]
    assert [row[0] for row in table(under, columns)] == _names(struct)


def test_every_change_has_its_number_and_its_fields() -> None:
    changes = [getattr(records, row[1]) for row in table(PAGE, "number | change")]
    assert set(changes) == set(records.Change.__args__)
    for row, change in zip(table(PAGE, "number | change"), changes, strict=True):
        assert int(row[0]) == change.__struct_config__.tag
        assert row[2].split(", ") == _names(change)


def test_a_block_has_as_many_flowfiles_as_the_page_says() -> None:
    assert f"{BLOCK_FLOWFILES} but for the last block" in PAGE


def test_the_examples_are_what_the_code_writes() -> None:
    header = FileHeader(repository="6f1c2d3e000040008000000000000001", number=4, created_ms=TIME)
    assert head(records.LOG_PREAMBLE, header) == _example("head")
    move = Move("f1", "out", 7, TIME, ((0, 3),), 0, {"a": "b", "gone": None})
    changes = (Take(("f1",), "m/s"), move, Leave("f2"))
    assert encode_transaction(Transaction(4, "m", TIME, changes, durable=3)) == _example("transaction")
    flowfile = FlowFile(uuid="f1", attributes={"uuid": "f1"}, size=5, entry_date=1, lineage_start_date=1)
    assert encode_flowfiles([Waiting(flowfile, "in", 6, TIME, ((0, 3), (2, None)))]) == _example("flowfiles")
