"""The same events give the same answers, whatever the settings, the containers and the batches of the ingest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from custody.model import Event
from custody.repository import Repository
from tests.support import append, numbered, run_steps, sample

EVENTS = sample(80)
QUESTIONS: dict[str, Callable[[Event], bool]] = {
    "": lambda event: True,
    "event_type:(SEND OR RECEIVE)": lambda event: event.event_type in ("SEND", "RECEIVE"),
    "filename:*order*": lambda event: "order" in (event.filename or "").lower(),
    "NOT file_size:[TO 1000]": lambda event: event.file_size > 1000,
    'details:"auto terminated"': lambda event: "auto-terminated" in (event.details or "").lower().replace(" ", "-"),
}


def make(root: Path, toml: str) -> Repository:
    Repository.create(root)
    (root / "custody.toml").write_text(toml)
    return Repository.open(root)


def check(repository: Repository) -> None:
    assert list(repository.events(count=1000)) == numbered(EVENTS)
    for text, matches in QUESTIONS.items():
        result = repository.search(text)
        wanted = [event for event in numbered(EVENTS) if matches(event)][::-1]
        assert [stored.event for stored in result.events] == wanted, text
        assert result.notices == ()


@pytest.mark.in_parts(2)
@pytest.mark.parametrize(
    "toml",
    [
        "",
        "[eventlog]\nblock_bytes_max = 4096\n",
        "[eventlog]\nblock_bytes_max = 4096\nrow_copies = true\n",
        '[eventlog]\ncompression = "gzip"\ncompression_level = 1\n',
        '[eventlog]\ncompression = "none"\n',
        '[repository]\ncontainers = ["a", "b", "c"]\nstore = "elsewhere/store"\ndatabase = "other"\n',
        "[catalog]\ncheckpoint_every = 1\n",
        '[repository]\nstore = "memory://same-answers"\n',
    ],
)
def test_settings_change_how_events_are_kept_and_never_what_is_found(tmp_path: Path, toml: str) -> None:
    repository = make(tmp_path / "repository", toml)
    for start in range(0, len(EVENTS), 30):
        append(repository, EVENTS[start : start + 30])
    run_steps(repository.settings)
    check(repository)


@settings(max_examples=6)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
    st.lists(st.sampled_from(["recover", "rollover", "compress", "index", "pass", "reopen"]), max_size=6),
)
def test_pieces_and_interruptions_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], between: list[str]
) -> None:
    repository = make(tmp_path_factory.mktemp("pieces") / "repository", "[catalog]\ncheckpoint_every = 2\n")
    left: list[Event] = list(EVENTS)
    for turn in range(max(len(sizes), len(between))):
        size = sizes[turn] if turn < len(sizes) else 0
        piece, left = left[:size], left[size:]
        append(repository, piece)
        action = between[turn] if turn < len(between) else "reopen"
        if action == "reopen":
            repository = Repository.open(repository.settings.root)
        elif action == "pass":
            run_steps(repository.settings)
        else:
            run_steps(repository.settings, action)
        assert list(repository.events(count=1000)) == numbered(EVENTS[: len(EVENTS) - len(left)])
    append(repository, left)
    run_steps(repository.settings)
    check(repository)
