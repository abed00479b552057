"""The rules of each event type in a session: what can be done with a FlowFile, and which events tell of it."""

from __future__ import annotations

from collections.abc import Callable

from custody.flow import FlowFile
from custody.model import Event
from tests.unit.flow.session_fixtures import Work, existing

URI = "s3://lake/orders"


def after(act: Callable[[Work, FlowFile], object], *, new: bool = False, queue: str | None = None) -> list[Event]:
    """The events of a session that does one thing with one FlowFile."""
    work = Work()
    act(work, work.create() if new else work.take(existing(), queue=queue))
    return work.done()


RULES: list[tuple[str, Callable[[Work, FlowFile], object], list[str], list[str]]] = [
    # what is done, the events of a FlowFile that was there, the events of one that was made in the session
    ("nothing", lambda w, f: None, [], ["CREATE"]),
    ("receive", lambda w, f: w.receive(f, URI), ["RECEIVE"], ["RECEIVE"]),
    ("fetch", lambda w, f: w.fetch(f, URI), ["FETCH"], ["FETCH"]),
    ("send", lambda w, f: w.send(f, URI), ["SEND"], ["SEND", "CREATE"]),
    ("send at the commit", lambda w, f: w.send(f, URI, force=False), ["SEND"], ["SEND", "CREATE"]),
    ("upload", lambda w, f: w.upload(f, URI, 7, force=False), ["UPLOAD"], ["UPLOAD", "CREATE"]),
    ("remote", lambda w, f: w.remote_invocation(f, URI), ["REMOTE_INVOCATION"], ["REMOTE_INVOCATION", "CREATE"]),
    ("route", lambda w, f: w.route(f, "success"), ["ROUTE"], ["ROUTE", "CREATE"]),
    ("addinfo", lambda w, f: w.addinfo(f, "order", "7"), ["ADDINFO"], ["ADDINFO", "CREATE"]),
    ("content", lambda w, f: w.modify_content(f, size=5), ["CONTENT_MODIFIED"], ["CREATE"]),
    (
        "content, reported",
        lambda w, f: w.modify_content(f, size=5, details="zipped"),
        ["CONTENT_MODIFIED"],
        ["CONTENT_MODIFIED", "CREATE"],
    ),
    ("attributes", lambda w, f: w.modify_attributes(f, {"a": "1"}), ["ATTRIBUTES_MODIFIED"], ["CREATE"]),
    (
        "attributes, reported",
        lambda w, f: w.modify_attributes(f, {"a": "1"}, details="by hand"),
        ["ATTRIBUTES_MODIFIED"],
        ["ATTRIBUTES_MODIFIED", "CREATE"],
    ),
    ("same attributes", lambda w, f: w.modify_attributes(f, {"filename": f.attributes["filename"]}), [], ["CREATE"]),
    ("clone", lambda w, f: w.clone(f), ["CLONE"], ["CLONE", "CREATE"]),
    ("fork", lambda w, f: w.fork(f), ["FORK"], ["FORK", "CREATE"]),
    ("join", lambda w, f: w.join([f]), ["JOIN"], ["JOIN", "CREATE"]),
    ("drop", lambda w, f: w.drop(f), ["DROP"], []),
    ("terminate", lambda w, f: w.terminate(f, "done"), ["DROP"], ["CREATE", "DROP"]),
]
