"""A producer that hands its events over and loses its disk, and what readers are told afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path

from custody.repository import Repository
from tests.support import append, numbered, run_steps, sample

EVENTS = sample(400)
PARTS = 4
Answers = dict[str, object]


def new_root(root: Path, store: str) -> Path:
    root.mkdir()
    (root / "custody.toml").write_text(
        f'[repository]\nstore = "{store}"\nstaging = "store"\n[journal]\nhandoff = "store"\n'
        # Several units and logs of so few events: groups of a hundred, logs of fewer.
        "[eventlog]\nlog_bytes_target = 60000\nblock_bytes_max = 8192\n"
        "[spark]\ndriver_bytes_max = 0\n[lease]\ndead_seconds = 5\n"
    )
    return root


def produce(root: Path, *, as_one_group: bool = False, is_lost: bool = True) -> None:
    """Append and hand over on the producer, whose disk is lost then, or is the driver's as well."""
    if as_one_group:
        with Repository.open(root).writer() as writer:
            for start in range(0, len(EVENTS), 5):
                writer.append(EVENTS[start : start + 5])
    else:
        _append(root)
    assert sum(group.events for group in Repository.open(root).hand_over()) == len(EVENTS)
    if not is_lost:
        return
    settings = (root / "custody.toml").read_text()
    shutil.rmtree(root)
    root.mkdir()
    (root / "custody.toml").write_text(settings)


def produce_and_die(root: Path) -> None:
    """Append on the driver's machine, by a writer that dies before it seals its last group; hand the others over."""
    _append(root)
    last = max(root.rglob("*.sealed"), key=lambda path: path.name)
    last.rename(last.with_suffix(".journal"))
    assert len(Repository.open(root).hand_over()) == PARTS - 1


def answers(root: Path) -> Answers:
    """What readers are told: all events, and answers to questions with their totals."""
    repository = Repository.open(root)
    texts = ("", "event_type:SEND", "event_type:DROP", f"flowfile_uuid:{EVENTS[7].flowfile_uuid}")
    found = {text: repository.search(text, limit=1000) for text in texts}
    # Of a producer's machine that is gone its containers are missed, and nothing else.
    assert all("is missing. Mount it" in notice for answer in found.values() for notice in answer.notices)
    return {
        "events": list(repository.events(count=1000)),
        **{text: (answer.total, [stored.event for stored in answer.events]) for text, answer in found.items()},
        "get": [repository.get(number) for number in range(0, len(EVENTS), 37)],
    }


def rolled_over_locally(root: Path) -> Answers:
    """What readers are told when the same events are rolled over in one process, on one disk."""
    (root / "custody.toml").touch()
    _append(root)
    run_steps(Repository.open(root).settings)
    result = answers(root)
    assert result["events"] == numbered(EVENTS)
    return result


def _append(root: Path) -> None:
    size = len(EVENTS) // PARTS
    for part in range(PARTS):
        append(Repository.open(root), EVENTS[part * size : (part + 1) * size])
