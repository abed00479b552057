"""Damage to a catalog is found and named: each object, each byte, on each kind of store."""

from __future__ import annotations

from uuid import uuid4

import msgspec
import pytest

from custody.catalog import Catalog, ForkError, plan_repair, prune, repair, verify
from custody.catalog.attest import attest, compare, new_key, read_attestation
from custody.catalog.codec import decode, encode
from custody.catalog.state import CatalogState
from custody.clock import ManualClock
from custody.errors import ConfigurationError, CorruptionError, CustodyError, FormatVersionError, InvalidInputError
from custody.store.remote import RemoteStore
from tests.behaviour.places import START_MS, Place, add, build, place, remove, s3_url
from tests.parts import Part
from tests.support import flipped

__all__ = ["place", "s3_url"]
STRIDE = {"local": 1, "memory": 1, "s3": 41}
"""Over a network not every byte is tried."""
OF_A_RUN = {"local": 16, "memory": 4, "s3": 4}
"""The parts that a run tries one of; on a disk they are smaller, for its objects are synced one by one."""
CLOCK = ManualClock(START_MS)


def _defects(place: Place) -> list[str]:
    return [str(defect) for defect in verify(place.catalog(), files=False).defects]


def _two_checkpoints(place: Place) -> Catalog:
    catalog = build(place.catalog(), 2)
    catalog.checkpoint()
    catalog.commit([add("more")])
    catalog.checkpoint()
    catalog.commit([add("newest")])
    return catalog


def test_a_whole_catalog_has_no_defects(place: Place) -> None:
    _two_checkpoints(place)
    report = verify(place.catalog(), files=False)
    assert (report.defects, report.notices, report.revisions, report.checkpoints) == ([], [], 4, 2)


@pytest.mark.in_parts
def test_every_byte_of_every_object_counts(place: Place, part: Part) -> None:
    """The right state, or an error that names the object; and the walk names it in any case."""
    expected = _two_checkpoints(place).load()
    store = place.open()
    for key in place.objects():
        good = store.get(key)
        if key.endswith(".parquet"):
            continue  # a copy, tested by itself
        cases = -(-len(good) // STRIDE[place.kind])
        for number in part.of(f"bytes of a catalog, {place.kind}", cases, OF_A_RUN[place.kind]):
            byte = number * STRIDE[place.kind]
            store.put(key, flipped(good, 8 * byte + byte % 8))
            _check(place, key, expected)
        store.put(key, good[: len(good) // 2])
        _check(place, key, expected)
        store.put(key, good)
    assert place.catalog().load() == expected


def _check(place: Place, key: str, expected: CatalogState) -> None:
    where = place.open().locate(key)
    catalog = place.catalog()
    try:
        assert catalog.load() == expected
        harmless = True
    except (CorruptionError, FormatVersionError) as error:
        assert where in str(error)
        harmless = False
    assert harmless == (not key.endswith("txn") or "0000000003/" not in key)
    if key.endswith("newest-checkpoint"):
        assert any(where in notice for notice in verify(place.catalog(), files=False).notices)
    else:
        assert any(where in defect for defect in _defects(place)), key


def test_a_truncated_newest_checkpoint_is_passed_over_and_said(place: Place) -> None:
    expected = _two_checkpoints(place).load()
    newest = place.objects(ends=".ckpt")[-1]
    store = place.open()
    store.put(newest, store.get(newest)[:100])
    catalog = place.catalog()
    assert catalog.load() == expected
    assert len(catalog.notices) == 1
    assert store.locate(newest) in catalog.notices[0]
    for key in place.objects(ends=".ckpt"):
        store.put(key, b"")
    assert place.catalog().load() == expected


@pytest.mark.parametrize("revision", [0, 1, 2])
def test_a_transaction_that_is_missing_in_the_middle_is_named(place: Place, revision: int) -> None:
    build(place.catalog())
    place.open().delete(place.objects(ends=".txn")[revision])
    with pytest.raises(CorruptionError, match=f"revision {revision} is missing"):
        place.catalog().load()
    with pytest.raises(CorruptionError, match=f"revision {revision} is missing"):
        place.catalog().commit([add("new")])
    assert any(f"revision {revision} has no transaction" in defect for defect in _defects(place))


def test_a_newest_transaction_that_is_gone_shows_by_its_checkpoint(place: Place) -> None:
    expected = build(place.catalog()).load()
    place.catalog().checkpoint()
    place.open().delete(place.objects(ends=".txn")[-1])
    assert place.catalog().load() == expected
    assert any("revision 3 has no transaction" in defect for defect in _defects(place))


def test_newest_transactions_that_are_gone_with_their_checkpoint_show_by_the_hint(place: Place) -> None:
    build(place.catalog())
    place.catalog().checkpoint()
    for key in place.objects():
        if "0000000003/" in key:
            place.open().delete(key)
    with pytest.raises(CorruptionError, match="there was a revision 3"):
        place.catalog().load()
    assert any("there was a revision 3" in defect for defect in _defects(place))


def test_a_newest_transaction_that_is_gone_without_a_trace_shows_by_an_attestation_only(place: Place) -> None:
    catalog = build(place.catalog())
    signed = attest(catalog, new_key(), CLOCK)
    place.open().delete(place.objects(ends=".txn")[-1])
    assert place.catalog().load().revision == 2  # the chain cannot tell its end
    report = verify(place.catalog(), files=False)
    assert report.defects == []
    assert len(report.notices) == (1 if place.kind == "local" else 0)  # an empty folder is left on a disk
    assert "revision 3 was attested, the newest is 2" in compare(place.catalog(), signed).defects[0]


def test_history_that_was_written_anew_shows_by_an_attestation_only(place: Place) -> None:
    catalog = build(place.catalog())
    signed = attest(catalog, new_key(), CLOCK)
    assert compare(place.catalog(), signed).defects == ()
    store = place.open()
    key = place.objects(ends=".txn")[-1]
    forged = decode(store.get(key), key)
    forged.actions[0].add_file.rows = 9
    store.put(key, encode(forged))
    assert _defects(place) == []
    assert "revision 3 is not the one that was attested" in compare(place.catalog(), signed).defects[0]


def test_an_attestation_is_worth_its_signature(place: Place) -> None:
    catalog = build(place.catalog())
    pem = new_key()
    signed = attest(catalog, pem, CLOCK)
    data = msgspec.json.encode(signed)
    assert read_attestation(data, "head") == signed
    for changed in (data.replace(b'"revision":3', b'"revision":2'), data.replace(signed.digest[:8].encode(), b"0" * 8)):
        with pytest.raises(CorruptionError, match="its signature is wrong"):
            read_attestation(changed, "head")
    with pytest.raises(CorruptionError, match="expected a signature of the key"):
        read_attestation(data, "head", trusted_key="00" * 32)
    with pytest.raises(InvalidInputError):
        read_attestation(b"{}", "head")
    with pytest.raises(ConfigurationError):
        attest(catalog, b"no key", CLOCK)


def test_an_attestation_of_a_pruned_revision_proves_nothing(place: Place) -> None:
    catalog = place.catalog()
    catalog.commit([add("first")])
    signed = attest(catalog, new_key(), CLOCK)
    for number in range(4):
        catalog.commit([add(f"file-{number}")])
        catalog.checkpoint()
    prune(catalog, 2)
    comparison = compare(place.catalog(), signed)
    assert (comparison.defects, comparison.proven) == ((), ())
    assert "revision 0 was pruned" in comparison.unproven[0]
    assert _defects(place) == []


def test_a_changed_checkpoint_at_the_floor_shows_by_the_chain(place: Place) -> None:
    """The transactions before it are gone, so that only the digest in the pruning can tell."""
    catalog = place.catalog()
    for number in range(5):
        catalog.commit([add(f"file-{number}")])
        catalog.checkpoint()
    assert prune(catalog, 2).floor == 2
    store = place.open()
    key = place.objects(ends=".ckpt")[0]
    message = decode(store.get(key), key)
    message.live_paths.append("file-x")
    message.live_files.append(b"")
    store.put(key, encode(message))
    assert any("the checkpoint that the pruning names" in defect for defect in _defects(place))


def test_another_transaction_at_a_revision_is_foreign_where_names_are_derived(place: Place) -> None:
    expected = build(place.catalog()).load()
    store = place.open()
    key = place.objects(ends=".txn")[2]
    store.put(f"{key.rpartition('/')[0]}/{uuid4()}.txn", store.get(key))
    assert place.catalog().load() == expected
    assert [defect for defect in _defects(place) if "a foreign object" in defect]


def test_foreign_files_and_a_sibling_folder_do_no_harm(place: Place) -> None:
    expected = build(place.catalog()).load()
    store = place.open()
    key = place.objects(ends=".txn")[3]
    folder = key.rpartition("/")[0]
    for name in (f"{folder}/notes.txt", f"{folder}/{uuid4()}.txn.bak", f"{folder[:-1]}x/{uuid4()}.txn"):
        store.put(name, b"mine")
    store.put(key.replace("transactions/", "transactions-old/").replace("0003/", "0009/"), store.get(key))
    store.put("main/provenance/transactions/readme", b"mine")
    assert place.catalog().load() == expected
    assert place.catalog().commit([add("next")]).revision == 4
    assert _defects(place) == []


def test_without_put_if_absent_names_are_random_and_a_fork_is_named(place: Place) -> None:
    if place.kind == "local":
        pytest.skip("a disk has put-if-absent")

    def plain() -> RemoteStore:
        store = place.open()
        assert isinstance(store, RemoteStore)
        store.can_put_if_absent = False
        return store

    writer = build(place.catalog(store=plain()), 2)
    assert len(set(place.objects(ends=".txn"))) == 2
    assert place.catalog().load() == writer.load()  # whoever can put-if-absent reads it too
    late = place.catalog(store=plain())
    late.load()
    writer.commit([add("one")])
    late._known = late.chain.at(1)
    data = late._successor(late._known, [add("other")], 0, b"")
    plain().put(late.objects.key(2, data.uuid), encode(data))  # as a racer does that looked a moment earlier
    with pytest.raises(ForkError, match="revision 2 forks") as caught:
        place.catalog(store=plain()).load()
    assert len(caught.value.uuids) == 2
    assert any("a fork" in defect for defect in _defects(place))


def test_a_catalog_with_derived_names_refuses_a_writer_that_cannot_put_if_absent(place: Place) -> None:
    build(place.catalog(), 1)
    store = place.open()
    store.can_put_if_absent = False
    with pytest.raises(ConfigurationError, match="needs put-if-absent"):
        place.catalog(store=store).commit([add("new")])


@pytest.mark.parametrize("how", ["flipped", "missing"])
def test_a_repair_keeps_what_can_be_read_and_says_what_is_lost(place: Place, how: str) -> None:
    catalog = build(place.catalog(), 3)
    catalog.checkpoint()
    catalog.commit([add("lost")], next_event_id=50)
    catalog.commit([add("kept")], next_event_id=60)
    catalog.commit([remove("lost"), add("partly")], next_event_id=70)
    store = place.open()
    key = place.objects(ends=".txn")[3]
    if how == "missing":
        store.delete(key)
    else:
        store.put(key, flipped(store.get(key), 200))
    with pytest.raises(CorruptionError):
        place.catalog().load()
    plan = plan_repair(place.catalog())
    assert (plan.good.revision, plan.newest, plan.lost) == (2, 5, (3,))
    assert plan.skipped == ("revision 5: cannot remove file lost: it is not live.",)
    with pytest.raises(CorruptionError):
        place.catalog().load()  # a plan changes nothing
    _, state = repair(place.catalog(), CLOCK)
    assert sorted(state.files) == ["file-0", "file-1", "file-2", "kept", "partly"]
    assert (state.revision, state.next_event_id) == (3, 70)
    assert place.catalog().load() == state
    assert _defects(place) == []
    note = list(place.catalog().timeline())[-1].actions[0].note
    assert list(note.lost_revisions) == [3]
    aside = [key for key in store.keys("main/provenance/") if "transactions-damaged-" in key]
    assert len(aside) == (4 if how == "flipped" else 3)  # the hint goes too
    assert plan_repair(place.catalog()).is_needed is False


def test_a_repair_replaces_a_checkpoint_that_cannot_be_read(place: Place) -> None:
    expected = _two_checkpoints(place).load()
    for key in place.objects(ends=".ckpt"):
        place.open().put(key, b"broken")
    assert len(plan_repair(place.catalog()).checkpoints) == 2
    _, state = repair(place.catalog(), CLOCK)
    assert state == expected
    assert _defects(place) == []
    assert Catalog(place.open(), "main", "provenance", CLOCK).checkpoint_age() == 0


def test_a_repair_refuses_what_a_newer_custody_wrote(place: Place) -> None:
    build(place.catalog(), 1)
    store = place.open()
    [key] = place.objects(ends=".txn")
    message = decode(store.get(key), key)
    message.reader_features.append("from-the-future")
    store.put(key, encode(message))
    with pytest.raises(CustodyError, match="from-the-future"):
        repair(place.catalog(), CLOCK)
    assert place.objects(ends=".txn") == [key]
