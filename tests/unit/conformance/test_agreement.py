"""The receiver over HTTP and the judge in memory: one status for every request of every shipped case."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import uvicorn

from custody.clock import SystemClock
from custody.config import NgsiSection, Settings
from custody.ngsi.http_notification import Accepts
from custody.ngsi.parameters import Parameters, read_names
from custody.repository import Repository
from custody.serving.ngsi_intake import Intake
from custody.serving.ngsi_receiver import Receiver, receiver_app
from custody.vfs.memory import MemoryFileSystem
from custody_conformance.case import Case
from custody_conformance.checking import shipped_cases
from custody_conformance.in_memory import run


@contextmanager
def served(intake: Intake, repository: Repository, section: NgsiSection) -> Iterator[str]:
    """Serve a receiver with these parameters on a free port of this machine."""
    settings = repository.settings.model_copy(update={"ngsi": section})
    app = receiver_app(Receiver(settings, intake, repository.quarantine, SystemClock()))
    config = uvicorn.Config(app, port=0, http="h11", lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        yield "http://{}:{}".format(*server.servers[0].sockets[0].getsockname()[:2])
    finally:
        server.should_exit = True
        thread.join()


def posted(client: httpx.Client, url: str, case: Case) -> list[int]:
    """Return the status of each request of a case."""
    return [
        client.request(
            case.request.method,
            url + case.request.path,
            content=case.bytes_of(sent),
            headers=[(name.encode(), value.encode()) for name, value in {**case.headers, **sent.headers}.items()],
        ).status_code
        for sent in case.sent
    ]


def test_the_receiver_and_the_judge_agree_on_every_shipped_case() -> None:
    groups: dict[Accepts, list[tuple[Case, NgsiSection]]] = {}
    refused_at_start = 0
    for case in shipped_cases():
        names = read_names(case.config, grouping_rules=case.grouping_rules, name_mappings=case.name_mappings)
        if isinstance(names, Parameters):
            groups.setdefault(Accepts.of(names.values), []).append((case, names.values))
        else:
            refused_at_start += 1
    memory = MemoryFileSystem()
    memory.make_directory(Path("/repository"))
    repository = Repository(Settings(root=Path("/repository")), memory, SystemClock())
    differing, asked, answers = [], 0, set[int]()
    with repository.writer() as writer, Intake(writer, 4) as intake, httpx.Client(timeout=60) as client:
        for group in groups.values():
            with served(intake, repository, group[0][1]) as url:
                for case, _ in group:
                    statuses = posted(client, url, case)
                    if statuses != run(case).statuses:
                        differing.append((case.id, statuses, run(case).statuses))
                    asked += len(statuses)
                    answers |= set(statuses)
    assert differing == []
    assert answers == {200, 400, 404, 405, 413, 415}
    assert asked > 200 > refused_at_start
