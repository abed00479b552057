"""A server of this process with all its doors, whose repository holds what a stranger looks for, and its identities."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import FastAPI
from starlette.testclient import TestClient

from custody.clock import SystemClock
from custody.config.sections import DoorName
from custody.quarantine import bad_piece
from custody.repository import EventSelection, Repository
from custody.serving.access import Scope, Tokens, add_token
from custody.serving.application import Access, application
from custody.serving.door import Services
from custody.serving.doors import open_doors
from custody.serving.rights import Rights
from custody.vfs import PosixFileSystem
from tests.support import append, event, run_steps
from tests.swh.database import publish_reference
from tests.swh.graphs import Shape, random_graph
from tests.swh.reference import Reference

SECRET = "swordfish"  # noqa: S105 - what must be in no answer to who may not see it
CONTENT = f"{SECRET} in a content ".encode() * 9
DOORS: tuple[DoorName, ...] = ("api", "pages", "openlineage", "events", "ngsi", "site-to-site", "swh")
SHOWN, HIDDEN = "orders", f"the-{SECRET}"
RULES = f"""
[[rule]]
who = ["admin"]
see = "everything"

[[rule]]
who = ["clerk"]
see = [{{process_group_name = "{SHOWN}"}}]
"""


class Asked(NamedTuple):
    """The application, a client of it, and the headers of each identity."""

    app: FastAPI
    client: TestClient
    repository: Repository
    headers: dict[str, dict[str, str]]


def filled(root: Path) -> Repository:
    """A repository with hidden events in logs, journals, contents, a hold, the quarantine, and published software."""
    repository = Repository.create(root)
    for number in range(6):
        group = SHOWN if number % 3 == 0 else HIDDEN
        named: dict[str, Any] = {} if group == SHOWN else {"details": SECRET, "updated_attributes": {"who": SECRET}}
        append(repository, [event(number, process_group_name=group, **named)])
    repository.append_with_content([event(6, process_group_name=HIDDEN)], CONTENT)
    run_steps(repository.settings)
    repository.hold(f"{SECRET} hold", EventSelection(attributes={"who": SECRET}), f"{SECRET} reason", "admin")
    append(repository, [event(7, process_group_name=HIDDEN, details=SECRET)])
    piece = bad_piece(
        f'{{"{SECRET}": 1}}'.encode(),
        severity="error",
        code="bad-value",
        message=f"{SECRET} is no event",
        file="somewhere",
        index=0,
        offset=0,
        node=None,
        received_ms=1,
        format="custody",
    )
    repository.quarantine.add(piece)
    publish_reference(
        repository.settings, "first", Reference(random_graph(Shape(5, 10, 8, 4, 2, 2, 2, 6, 0.1)), "all"), "all"
    )
    return Repository.open(root)


@contextmanager
def asked_server(root: Path) -> Iterator[Asked]:
    """Open all doors on a filled repository, with tokens, and rules for some of their names."""
    repository = filled(root)
    (root / "rights.toml").write_text(RULES)
    scopes = {
        "admin": frozenset(Scope),
        "clerk": frozenset(Scope),
        "nothing": frozenset(Scope),
        "reader": frozenset({Scope.READ}),
        "producer": frozenset({Scope.APPEND}),
    }
    made = {name: add_token(PosixFileSystem(), root / "tokens", name, each, "") for name, each in scopes.items()}
    (root / "custody.toml").write_text('[serve]\ntoken_file = "tokens"\nrights_file = "rights.toml"\n')
    repository = Repository.open(root)
    services = Services(repository, repository.settings, SystemClock())
    access = Access(Tokens.read(root / "tokens"), rights=Rights(root / "rights.toml"))
    headers = {name: {"authorization": f"Bearer {token}"} for name, token in made.items()}
    headers |= {"no token": {}, "unknown token": {"authorization": "Bearer an-unknown-token-of-nobody"}}
    with ExitStack() as held:
        held.callback(services.close)
        doors = held.enter_context(open_doors(DOORS, services))
        app = application(repository.settings.serve, doors, access)
        client = TestClient(app, base_url="http://custody.example", raise_server_exceptions=False)
        yield Asked(app, held.enter_context(client), repository, headers)
