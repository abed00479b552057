"""Text that is no valid Unicode: refused by name wherever something is stored, and no file is refused for its name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from custody.cli.main import cli
from custody.errors import ConfigurationError, InvalidInputError
from custody.format.names import name_as_text, text_as_name
from custody.landing import Interval, LandedFile, parse_instant
from custody.model import ContentClaim, Event, require_text, require_valid, to_batch
from custody.repository import Component, EventSelection, Repository, SlotWriter
from custody.repository.landing_ingest import ingest_landed, waiting_files
from tests.support import append, event, files_below, run_steps, unnumbered, write_samples

HALF = os.fsdecode(b"men\xfc.csv")
BAD: list[tuple[str, Event]] = [
    ("event_type", event(event_type=HALF)),
    ("details", event(details=HALF)),
    ("source_node", event(source_node=HALF)),
    (r"parent_uuids\[1\]", event(parent_uuids=("a", HALF))),
    (r"updated_attributes\['filename'\]", event(updated_attributes={"filename": HALF})),
    ("previous_attributes: a name", event(previous_attributes={HALF: "a"})),
    ("content_claim.container", event(content_claim=ContentClaim(container=HALF))),
    ("extra", event(extra=HALF)),
]
WAYS: list[Callable[[SlotWriter, list[Event]], object]] = [
    lambda writer, events: writer.append(events),
    lambda writer, events: writer.append_with_content(events, b"bytes of a content"),
    lambda writer, events: writer.append_with_content(events, iter([b"bytes of ", b"a content"])),
    lambda _, events: require_valid(events),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("few", [True, False])
def test_events_are_refused_by_field_and_place_and_the_writer_goes_on(
    repository: Repository, way: Callable[[SlotWriter, list[Event]], object], few: bool
) -> None:
    good = [event(number) for number in range(1 if few else 50)]
    with repository.writer() as writer:
        for name, bad in BAD:
            with pytest.raises(
                InvalidInputError, match=f"event {len(good)} of the batch.*{name}, character 3"
            ) as refused:
                way(writer, [*good, bad])
            assert str(refused.value).isprintable()
        assert not list(repository.settings.store.rglob("content"))
        assert writer.append(good) == range(len(good))
    assert unnumbered(repository.events(count=100)) == good


def test_the_repository_refuses_them_before_it_takes_a_slot(repository: Repository) -> None:
    before = files_below(repository.settings.root)
    for name, bad in BAD:
        with pytest.raises(InvalidInputError, match=name):
            repository.append([event(), bad])
        with pytest.raises(InvalidInputError, match=name):
            repository.append_with_content([bad], b"x")
    assert files_below(repository.settings.root) == before


def test_columns_whose_bytes_are_no_utf_8_are_refused(repository: Repository) -> None:
    batch = to_batch([event(), event(1)], 0).remove_column(0)
    broken = pa.array([b"fine", b"men\xfc"], pa.binary()).view(pa.string())
    batch = batch.set_column(batch.schema.get_field_index("details"), "details", broken)
    with pytest.raises(InvalidInputError, match="UTF8"):
        repository.append_columns(batch)
    assert list(repository.events()) == []


def test_what_else_is_no_usual_text_is_kept_as_it_is(repository: Repository) -> None:
    odd = "\0 \x1b \u202e \ufffe \U0010ffff \N{ZERO WIDTH JOINER}"
    events = [event(0, details=odd, updated_attributes={odd: odd, "filename": odd}, parent_uuids=(odd,))]
    with repository.session(Component(id=odd, type="t")) as session:
        session.create({odd: odd}, size=(1 << 63) - 1)
    append(repository, events)
    for _ in range(2):
        found = list(repository.events())
        assert (found[0].component_id, found[0].attributes[odd]) == (odd, odd)
        assert unnumbered(found[1:]) == events
        run_steps(repository.settings)


def test_what_goes_into_the_catalog_is_refused_by_name(repository: Repository) -> None:
    append(repository, [event()])
    run_steps(repository.settings)
    one = EventSelection(event_ids=[0])
    ways: list[tuple[str, Callable[[], object]]] = [
        ("reason", lambda: repository.forget(one, HALF)),
        ("FlowFile 1", lambda: repository.forget(EventSelection(flowfile_uuids=["a", HALF]), "x")),
        ("attribute 'a'", lambda: repository.count_selected(EventSelection(attributes={"a": HALF}))),
        ("an attribute's name", lambda: repository.forget(EventSelection(attributes={HALF: "a"}), "x")),
        ("name", lambda: repository.hold(HALF, one, "x", "y")),
        ("reason", lambda: repository.hold("a", one, HALF, "y")),
        ("who", lambda: repository.hold("a", one, "x", HALF)),
        ("event type 0", lambda: repository.hold("a", one, "x", "y", event_types=[HALF])),
        ("attribute 'a'", lambda: repository.hold("a", EventSelection(attributes={"a": HALF}), "x", "y")),
        ("reason", lambda: repository.release("a", HALF, "y")),
    ]
    revision = repository.workspace().catalog.load().revision
    for name, act in ways:
        with pytest.raises(InvalidInputError, match=f"{name}, character 3: expected valid Unicode"):
            act()
    assert repository.workspace().catalog.load().revision == revision
    result = CliRunner().invoke(
        cli, ["-r", str(repository.settings.root), "forget", "--flowfile", "a", "--yes", "--reason", HALF]
    )
    assert (result.exit_code, "reason, character 3" in result.stderr) == (InvalidInputError.exit_code, True)


def test_the_place_of_half_a_pair_is_told_also_where_no_byte_is_meant() -> None:
    require_text(a="fine", b=None)
    with pytest.raises(InvalidInputError, match=r"^a, character 2: expected valid Unicode, got .* U\+D83D; "):
        require_text(a="ab\ud83d")


@given(st.binary(max_size=12) | st.text(alphabet="\\x5ce9a\N{LATIN SMALL LETTER E WITH ACUTE}").map(str.encode))
def test_a_name_of_any_bytes_is_a_text_that_says_which(raw: bytes) -> None:
    name = raw.decode("utf-8", "surrogateescape")
    text = name_as_text(name)
    text.encode()
    assert text_as_name(text) == name


def test_usual_names_are_their_own_text() -> None:
    for name in ("/a/b c.json", "C:\\temp\\x", "men\N{LATIN SMALL LETTER E WITH ACUTE}.csv", "\\xE9", "\\x5"):
        assert name_as_text(name) == name
    assert name_as_text(HALF) == "men\\xfc.csv"
    assert name_as_text("\\xe9") == "\\x5cxe9"


@pytest.fixture
def odd_file(tmp_path: Path) -> Path:
    """A file of events with a broken element, whose name is no UTF-8."""
    folder = tmp_path / "landing"
    folder.mkdir()
    [made] = write_samples(folder, 20, nodes=1)
    made.write_text(json.dumps([*json.loads(made.read_bytes()), {"x": 1}]))
    return made.rename(folder / os.fsdecode(b"men\xfc.json"))


def test_a_file_of_any_name_is_ingested_and_named_in_text(repository: Repository, odd_file: Path) -> None:
    with repository.ingest() as work:
        report = work.file(odd_file)
    shown = str(odd_file.parent) + "/men\\xfc.json"
    assert (report.file, report.stored, report.rejected) == (shown, 20, 1)
    [entry] = repository.quarantine.entries()
    assert entry.file == shown
    assert text_as_name(entry.file) == str(odd_file)
    with repository.ingest() as work:
        assert work.resubmit(entry.key).file == shown
        with pytest.raises(InvalidInputError, match="node, character 3"):
            work.file(odd_file, node=HALF)
    run = CliRunner()
    root = str(repository.settings.root)
    for arguments in (["ingest", str(odd_file)], ["ingest", str(odd_file.parent), "--json"], ["quarantine", "list"]):
        result = run.invoke(cli, ["-r", root, *arguments])
        assert "men\\" in result.stdout, result.stderr


def test_a_landed_file_of_any_name_is_taken_once(odd_file: Path, tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    (root / "custody.toml").write_text(f'[landing]\nfolder = "{odd_file.parent}"\nquiet_seconds = 0\n')
    repository = Repository.open(root)
    interval = Interval(parse_instant("2026-03-01T00:00"), parse_instant("2026-03-01T01:00"))
    [landed] = waiting_files(repository, interval)
    again = json.loads(json.dumps({"file": landed.file}))["file"]
    assert LandedFile(file=again, bytes=0, modified_ms=0, is_quiet=True, taken=None).path == odd_file
    [report] = ingest_landed(repository, [landed], "run")
    assert (report.events, report.error) == (20, None)
    assert waiting_files(repository, interval) == []
    result = CliRunner().invoke(cli, ["-r", str(root), "landing", "--json"])
    assert [item["file"] for item in json.loads(result.stdout)] == [landed.file]


def test_a_stray_file_of_any_name_can_be_named_in_json(repository: Repository) -> None:
    append(repository, [event()])
    run_steps(repository.settings)
    (repository.workspace().paths.home / "data" / HALF).write_bytes(b"x")
    for arguments in (["verify", "--orphans", "--json"], ["verify", "--orphans"]):
        result = CliRunner().invoke(cli, ["-r", str(repository.settings.root), *arguments])
        assert "men" in result.stdout, result.exception


def test_a_repository_is_not_made_where_its_path_cannot_be_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"men\\xfc.csv: expected a folder whose path is UTF-8"):
        Repository.create(tmp_path / HALF)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigurationError, match="UTF-8"):
        Repository.open(tmp_path / HALF)
