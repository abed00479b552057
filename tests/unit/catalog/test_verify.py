"""Damage to a catalog: found, named, and where a checkpoint is all that is hurt, harmless. Foreign files do no harm."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import uuid4

import pytest

from custody.catalog import Catalog, Transaction
from custody.catalog.codec import PREAMBLE, decode, encode
from custody.clock import ManualClock
from custody.errors import CorruptionError, FormatVersionError
from custody.format.names import revision_folder, transaction_file
from custody.store import LocalStore
from custody.vfs import PosixFileSystem
from tests.support import flipped
from tests.unit.catalog.catalogs import add, build, open_catalog, transactions, value


def test_a_damaged_newest_checkpoint_falls_back_to_an_older_one_or_to_the_transactions(tmp_path: Path) -> None:
    catalog = build(tmp_path, 2)
    catalog.checkpoint()
    catalog.commit([add("more")])
    expected = value(catalog.load())
    newest = catalog.checkpoint()
    good = newest.read_bytes()
    for bit in range(0, 8 * len(good), 37):
        newest.write_bytes(flipped(good, bit))
        assert value(open_catalog(tmp_path).load()) == expected
    transactions(tmp_path, "ckpt")[0].write_bytes(b"")
    assert value(open_catalog(tmp_path).load()) == expected


def test_every_flipped_byte_of_a_transaction_is_found_and_named(tmp_path: Path) -> None:
    build(tmp_path)
    path = transactions(tmp_path)[1]
    good = path.read_bytes()
    for byte in range(len(good)):
        path.write_bytes(flipped(good, 8 * byte + byte % 8))
        expected = FormatVersionError if byte == len(PREAMBLE) - 1 else CorruptionError
        with pytest.raises(expected, match=str(path)):
            open_catalog(tmp_path).load()
        with pytest.raises(expected, match=str(path)):
            list(open_catalog(tmp_path).timeline())
    path.write_bytes(good[:-1])
    with pytest.raises(CorruptionError, match=str(path)):
        open_catalog(tmp_path).load()


@pytest.mark.parametrize("revision", [0, 1, 2])
def test_a_missing_transaction_is_found(tmp_path: Path, revision: int) -> None:
    build(tmp_path)
    transactions(tmp_path)[revision].unlink()
    with pytest.raises(CorruptionError, match=f"revision {revision} is missing"):
        open_catalog(tmp_path).load()


def test_a_transaction_missing_behind_a_checkpoint_is_found_by_the_timeline(tmp_path: Path) -> None:
    build(tmp_path).checkpoint()
    transactions(tmp_path)[1].unlink()
    assert open_catalog(tmp_path).load().revision == 3
    with pytest.raises(CorruptionError, match="expected revision 1, got no file"):
        list(open_catalog(tmp_path).timeline())


def test_a_rewritten_transaction_does_not_fit_its_successor(tmp_path: Path) -> None:
    """A whole, well-formed object under the right name is still noticed, by the digest that the next one keeps."""
    build(tmp_path)
    path = transactions(tmp_path)[1]
    message = decode(path.read_bytes(), path)
    message.actions[0].add_file.rows = 9
    path.write_bytes(encode(message))
    with pytest.raises(CorruptionError, match="expected the successor of revision 1"):
        open_catalog(tmp_path).load()


def test_foreign_files_are_ignored(tmp_path: Path) -> None:
    expected = value(build(tmp_path).load())
    folder = tmp_path / "main/provenance/transactions"
    (folder / "notes").mkdir()
    (folder / "README").write_text("mine")
    (folder / revision_folder(2) / transaction_file(uuid4())).write_bytes(b"not ours")
    (folder / revision_folder(4)).mkdir()
    (folder / revision_folder(4) / "x.txn.0123.partial").write_bytes(b"half")
    assert value(open_catalog(tmp_path).load()) == expected
    assert open_catalog(tmp_path).commit([add("next")]).revision == 4


def test_a_catalog_of_another_writer_does_not_pass_for_this_one(tmp_path: Path) -> None:
    build(tmp_path)
    shutil.copytree(tmp_path / "main", tmp_path / "other")
    with pytest.raises(CorruptionError, match="foreign name"):
        Catalog(LocalStore(PosixFileSystem(), tmp_path), "other", "provenance", ManualClock()).load()


def test_an_unknown_reader_feature_is_refused_by_name(tmp_path: Path) -> None:
    build(tmp_path, 1)
    path = transactions(tmp_path)[0]
    message = decode(path.read_bytes(), path)
    message.reader_features.append("tombstones")
    path.write_bytes(encode(message))
    with pytest.raises(FormatVersionError, match="reader features tombstones"):
        open_catalog(tmp_path).load()


def test_an_unknown_writer_feature_stops_a_writer_and_no_reader(tmp_path: Path) -> None:
    build(tmp_path, 1)
    path = transactions(tmp_path)[0]
    message = decode(path.read_bytes(), path)
    message.writer_features.append("retention")
    path.write_bytes(encode(message))
    assert sorted(open_catalog(tmp_path).load().files) == ["file-0"]
    for _ in range(2):  # read from the transaction, then from a checkpoint
        with pytest.raises(FormatVersionError, match="writer features retention"):
            open_catalog(tmp_path).commit([add("new")])
        open_catalog(tmp_path).checkpoint()
    assert len(transactions(tmp_path)) == 1


def test_a_field_of_the_future_does_not_stop_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "x.txn"
    message = Transaction(revision=7).SerializeToString() + b"\xf2\x7d\x03new"
    transaction = Transaction.FromString(message)
    assert decode(encode(transaction), path).revision == 7


def test_the_format_s_numbers_stand() -> None:
    assert encode(Transaction())[:16] == b"CUSTCAT\x01" + bytes(8)
    assert len(encode(Transaction())) == 8 + 8 + 32
