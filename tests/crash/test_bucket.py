"""A repository in a bucket: a crash of process, disk and request at every operation, and every wrong answer.

What was acknowledged is there once, the catalog is one line, whatever has a name is whole, and a machine with an empty
disk answers from the bucket as the one that wrote. A quick run does some of the scenarios, and a part of each.
"""

from __future__ import annotations

import pytest

from custody.vfs.memory import CrashMode, InjectedCrash
from tests.crash.bucket_answers import enumerate_answers, run_with
from tests.crash.bucket_bugs import BUGS, BucketBug
from tests.crash.bucket_scenarios import IN_A_BUCKET
from tests.crash.enumeration import enumerate_crashes, operations_of, run_to
from tests.crash.machine_with_bucket import BUCKET, Answer, Fault, MachineWithBucket, in_a_bucket, new_disk, store_on
from tests.parts import Part

SMALL = {"appending", "pruning of a catalog", "garbage collection", "repair of a catalog", "two writers that race"}


@pytest.mark.in_parts(25)
@pytest.mark.parametrize("name", IN_A_BUCKET)
def test_a_crash_of_process_disk_and_request_at_any_operation_loses_nothing(name: str, part: Part) -> None:
    with IN_A_BUCKET[name].made() as scenario:
        _, _, error = run_to(scenario)
        assert error is None
        modes = tuple(CrashMode) if part.number is None else (CrashMode.SYNCED_ONLY,)
        # With an odd seed the request at which it ends did not arrive, with an even one it did.
        outcome = enumerate_crashes(scenario, modes=modes, seeds=2, part=part, with_edges=part.number is None)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > (3 if name in SMALL else 10)


@pytest.mark.in_parts(25)
@pytest.mark.parametrize("name", IN_A_BUCKET)
def test_a_wrong_answer_to_any_request_loses_nothing(name: str, part: Part) -> None:
    with IN_A_BUCKET[name].made() as scenario:
        outcome = enumerate_answers(scenario, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations >= (3 if name in SMALL else 10)


@pytest.mark.in_parts(15)
@pytest.mark.parametrize("bug", [pytest.param(bug, id=bug.name) for bug in BUGS])
def test_a_seeded_bug_is_found(bug: BucketBug) -> None:
    assert bug.found().alarms


def test_what_arrived_of_the_request_at_which_a_process_ended_is_unknown() -> None:
    with in_a_bucket():
        machine = MachineWithBucket(crash_at=2)
        store = store_on(machine, BUCKET)
        store.put("main/first", b"1")
        with pytest.raises(InjectedCrash):
            store.put("main/second", b"2")
        with pytest.raises(InjectedCrash):
            store.put("main/third", b"3")
        found = {seed: set(machine.crashed(CrashMode.SYNCED_ONLY, seed).bucket.objects) for seed in (1, 2)}
    assert found == {1: {"main/first"}, 2: {"main/first", "main/second"}}


def test_an_upload_in_parts_that_is_cut_leaves_parts_and_no_object() -> None:
    with in_a_bucket(multipart_bytes=10):
        machine = new_disk()
        machine.crash_at = 3
        with pytest.raises(InjectedCrash):
            store_on(machine, BUCKET).put("main/large", bytes(6000))
        assert isinstance(machine, MachineWithBucket)
        assert [operation.kind for operation in machine.operations] == ["begin", "part", "part"]
        left = machine.crashed(CrashMode.SYNCED_ONLY, 1).bucket
    assert not left.objects
    assert [len(parts) for _, parts in left.uploads.values()] == [1]


@pytest.mark.parametrize("answer", Answer)
def test_a_fault_is_an_error_and_what_became_of_the_request_is_told_apart_later(answer: Answer) -> None:
    scenario = IN_A_BUCKET["commits and checkpoints"]
    with scenario.made() as made:
        operations = operations_of(made)
        machine, record, error = run_with(made, Fault(2, answer))
        assert error is None
        assert len(machine.operations) >= len(operations)
        made.check(machine.crashed(CrashMode.ALL_KEPT), record)
