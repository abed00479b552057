"""What a receiver answers while its disk is full, its journals wait, or it stops; and that nothing is half stored."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Signal

import httpx
import pytest
from fastapi import FastAPI

from custody.clock import SystemClock
from custody.config import Settings
from custody.errors import BackpressureError, ClosedError, StorageError
from custody.ingest.slots import SlotWriter
from custody.repository import Repository
from custody.serving import Tokens
from custody.serving.ngsi_intake import Intake
from custody.serving.ngsi_receiver import Receiver, receiver_app
from custody.vfs.faults import Fault, FaultyFileSystem
from custody.vfs.memory import MemoryFileSystem
from tests.support import event
from tests.unit.serving.receiver_process import JSON, notification

Post = Callable[..., Awaitable[httpx.Response]]


class Place:
    """A repository in memory whose disk can fail."""

    def __init__(self, **settings: object) -> None:
        self.memory = MemoryFileSystem()
        self.memory.make_directory(Path("/repository"))
        self.fs = FaultyFileSystem(self.memory)
        document = {"root": Path("/repository"), "journal": {"seal_seconds": 3600, **settings}}
        self.settings = Settings.model_validate(document)
        self.repository = Repository(self.settings, self.fs, SystemClock())

    @contextmanager
    def receiver(self, tokens: Tokens | None = None) -> Iterator[Callable[[Callable[[Post], Awaitable[None]]], None]]:
        """Hold a writer and yield what runs a coroutine that posts."""
        with self.repository.writer() as writer, Intake(writer, 4) as intake:
            receiver = Receiver(self.settings, intake, self.repository.quarantine, SystemClock(), tokens)
            app = receiver_app(receiver)

            def run(work: Callable[[Post], Awaitable[None]]) -> None:
                async def posting() -> None:
                    transport = httpx.ASGITransport(app=app)
                    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                        await work(lambda body, **more: client.post("/notify", content=body, headers={**JSON, **more}))

                asyncio.run(posting())

            yield run


def test_a_full_disk_is_answered_with_503_and_the_time_to_come_again() -> None:
    place = Place()

    async def work(post: Post) -> None:
        assert (await post(notification(1))).status_code == 200
        place.fs.faults.append(Fault(frozenset({"write"}), path="content/*/*/*", count=None, errno=errno.ENOSPC))
        full = await post(notification(2))
        assert (full.status_code, full.headers["retry-after"], full.json()["error"]) == (503, "30", "disk-full")
        assert "/repository" not in full.text
        place.fs.faults.clear()
        assert (await post(notification(3))).status_code == 200

    with place.receiver() as run:
        run(work)
    assert [found.attributes["ngsi.entity.id"] for found in place.repository.events()] == ["car1-0", "car3-0"]


def test_a_journal_that_fails_is_answered_with_503_and_no_event_lacks_its_content() -> None:
    place = Place()

    async def work(post: Post) -> None:
        assert (await post(notification(1))).status_code == 200
        place.fs.faults.append(Fault(frozenset({"write"}), path="journals/*", errno=errno.EIO))
        assert (await post(notification(2))).json()["error"] == "storage"

    with place.receiver() as run:
        run(work)
    for found in place.repository.events():
        assert place.repository.content(found).read() in (notification(1), notification(2))


def test_journals_that_wait_are_answered_with_503() -> None:
    place = Place(seal_bytes=4096, waiting_bytes_max=4096, backpressure_seconds=0)

    async def work(post: Post) -> None:
        answers = [await post(notification(number, entities=20)) for number in range(5)]
        assert answers[0].status_code == 200
        assert (answers[-1].status_code, answers[-1].json()["error"]) == (503, "backpressure")
        assert answers[-1].headers["retry-after"] == "5"

    with place.receiver() as run:
        run(work)


def test_a_quarantine_that_cannot_be_written_is_answered_with_503() -> None:
    place = Place()
    place.fs.faults.append(Fault(frozenset({"write"}), path="quarantine/*", errno=errno.ENOSPC))

    async def work(post: Post) -> None:
        assert (await post(b"{nonsense")).status_code == 503
        assert (await post(b"{nonsense")).status_code == 400

    with place.receiver() as run:
        run(work)
    assert len(list(place.repository.quarantine.entries())) == 1


def test_the_application_can_be_mounted_in_another_one() -> None:
    place = Place()
    with place.repository.writer() as writer, Intake(writer, 4) as intake:
        receiver = Receiver(place.settings, intake, place.repository.quarantine, SystemClock())
        outer = FastAPI()
        outer.mount("/custody/ngsi", receiver_app(receiver))

        async def work() -> None:
            transport = httpx.ASGITransport(app=outer)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                answer = await client.post("/custody/ngsi/notify", content=notification(1), headers=JSON)
                assert answer.status_code == 200
                assert (await client.get("/custody/ngsi/health")).json()["notifications"] == 1

        asyncio.run(work())
    [found] = place.repository.events()
    assert found.transit_uri == "http://test/custody/ngsi/notify"


TOKENS = {
    "none": ({}, 401),
    "a wrong one": ({"authorization": "Bearer wrong-token-of-the-file"}, 401),
    "an empty one": ({"authorization": "Bearer "}, 401),
    "a comment": ({"x-auth-token": "# two"}, 401),
    "the first": ({"authorization": "Bearer first-token-of-the-file"}, 200),
    "the second": ({"authorization": "bearer second-token-of-the-file"}, 200),
    "in the brokers' header": ({"x-auth-token": "second-token-of-the-file"}, 200),
}


def test_a_token_is_asked_for_where_one_is_set(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "tokens"
    file.write_text("# two\nfirst-token-of-the-file\n\nsecond-token-of-the-file\n")
    file.chmod(0o600)
    place = Place()

    async def work(post: Post) -> None:
        for name, (headers, status) in TOKENS.items():
            answer = await post(notification(1), **headers)
            assert answer.status_code == status, name
            assert ("www-authenticate" in answer.headers) == (status == 401)

    # A command of another test may have quietened it.
    caplog.set_level("INFO", "custody.ngsi.access")
    with caplog.at_level("INFO"), place.receiver(Tokens.read(file)) as run:
        run(work)
    assert caplog.text.count("POST /notify 200 stored") == 3
    assert "token-of" not in caplog.text
    assert not any("token-of" in str(found) for found in place.repository.events())


class Slow:
    """A writer that stores when it is told to."""

    def __init__(self, inner: SlotWriter) -> None:
        self.inner = inner
        self.name = inner.name
        self.content = inner.content
        self.go = Signal()
        self.sizes: list[int] = []

    def append(self, events: list[object]) -> range:
        assert self.go.wait(30)
        self.sizes.append(len(events))
        return self.inner.append(events)  # type: ignore[arg-type]


def test_what_waits_is_stored_in_one_go_and_too_many_are_refused() -> None:
    with Place().repository.writer() as inner:
        slow = Slow(inner)
        intake = Intake(slow, waiting_max=4)  # type: ignore[arg-type]

        async def work() -> None:
            first = asyncio.create_task(intake.store(b"0", [event(0)]))
            while intake.waiting != 1 or not intake.is_storing:
                await asyncio.sleep(0.001)
            others = [asyncio.create_task(intake.store(bytes([n]), [event(n), event(n + 10)])) for n in (1, 2, 3)]
            await asyncio.sleep(0.01)
            with pytest.raises(BackpressureError, match="4 notifications wait"):
                await intake.store(b"5", [event(5)])
            others[1].cancel()
            slow.go.set()
            assert await first == range(1)
            assert [await others[0], await others[2]] == [range(1, 3), range(5, 7)]

        asyncio.run(work())
        assert slow.sizes == [1, 6], "who went away is stored all the same"
        assert (intake.stored, intake.batches) == (4, 2)
        intake.close()
        with pytest.raises(ClosedError):
            asyncio.run(intake.store(b"6", [event(6)]))


def test_each_of_a_failed_batch_gets_an_error_of_its_own() -> None:
    place = Place()
    with place.repository.writer() as writer, Intake(writer, 10) as intake:
        place.fs.faults.append(Fault(frozenset({"write"}), count=None, errno=errno.ENOSPC))

        async def work() -> list[object]:
            return await asyncio.gather(*(intake.store(b"x", [event(n)]) for n in range(3)), return_exceptions=True)

        errors = asyncio.run(work())
    assert all(isinstance(error, StorageError) and error.errno == errno.ENOSPC for error in errors)
    assert len({id(error) for error in errors}) == 3
