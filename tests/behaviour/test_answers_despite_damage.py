"""Answers despite damage: each is true or names what is missing, and no forgotten event is given out.

One place at a time of every kind of file that answers read, asked three times in one process, again in another order
in a process of its own, and in one that had asked before; and the truth again once the file is whole.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from custody.eventlog import EventLog
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.behaviour.answers import EDGE, MAIN, QUESTIONS, Answer, answer, build, damaged, judge, opened
from tests.support import flipped

SEED = 20
KINDS = {
    "log": "store/*/provenance/data/*/events/*.parquet",
    "table of contents": "store/*/provenance/data/*/events/*.toc",
    "shard": "disk*/*/index/*/*",
    "journal": "disk*/*/journals/*.sealed",
    "catalog": "store/*/provenance/transactions/**/*",
}


@dataclass(frozen=True)
class Made:
    root: Path
    truth: dict[str, Answer]

    def files(self, kind: str) -> list[Path]:
        paths = sorted(path for path in self.root.glob(KINDS[kind]) if path.is_file() and path.stat().st_size)
        assert paths, kind
        return paths


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("made") / "repository"
    build(root)
    truth: dict[str, Answer] = {}
    for name, question in QUESTIONS.items():
        given_answer = answer(opened(root), question)
        assert isinstance(given_answer, Answer), (name, given_answer)
        assert not given_answer.said or name.startswith("as of"), (name, given_answer.said)
        truth[name] = given_answer
    for writer in (MAIN, EDGE):
        ids = {event.event_id for whose, event in truth["search all"].items if whose == writer}
        assert len(ids) > 30
        assert ids.isdisjoint({3, 4, 12, 16, 21, 22})
    assert truth["lineage"].items
    assert len(truth["as of the first"].items) > 10
    return Made(root, truth)


@dataclass(frozen=True)
class Place:
    """A file and what becomes of it: a flipped bit, or gone where that is None."""

    path: Path
    bit: int | None

    def data(self) -> bytes | None:
        return None if self.bit is None else flipped(self.path.read_bytes(), self.bit)

    def names(self, text: str) -> bool:
        """Whether a text tells of the file, or of what it belongs to: the folder of a shard, a catalog."""
        path = self.path
        belongs = path.parent.parent if "transactions" in path.parts else path.parent
        return path.name in text or str(belongs) in text or f"{path.parent.name}/" in text

    def __str__(self) -> str:
        return f"{self.path.parent.name}/{self.path.name} " + ("gone" if self.bit is None else f"bit {self.bit}")


def bits(path: Path, count: int, chance: random.Random) -> Iterator[int]:
    """Bits of a file: of a log one in each block and one in its footer besides."""
    if path.suffix == ".parquet" and path.parent.name == "events":
        log = EventLog(PosixFileSystem(), path)
        for block in log.toc.blocks:
            yield 8 * int(block["offset"]) + chance.randrange(8 * int(block["length"]))
        yield 8 * log.toc.footer_offset + chance.randrange(8 * log.toc.footer_bytes)
    size = path.stat().st_size
    yield from (chance.randrange(8 * size) for _ in range(count))


def ask(
    sample: Made, place: Place, repository: Repository, order: Sequence[str], names: Callable[[str], bool]
) -> list[str]:
    wrong = [judge(name, answer(repository, QUESTIONS[name]), sample.truth[name], names) for name in order]
    return [f"{place}: {text}" for text in wrong if text]


def check(sample: Made, place: Place, chance: random.Random, questions: int = len(QUESTIONS)) -> list[str]:
    """Damage a place; return what is wrong with the answers, meanwhile and afterwards."""
    chosen = chance.sample(list(QUESTIONS), questions)
    names = [name for name in QUESTIONS if name in chosen]
    wrong: list[str] = []
    warm = opened(sample.root)
    for name in chance.sample(names, 3):
        answer(warm, QUESTIONS[name])
    cold = opened(sample.root)
    with damaged(place.path, place.data()):
        for _ in range(3):
            wrong += ask(sample, place, cold, names, place.names)
        wrong += ask(sample, place, opened(sample.root), chance.sample(names, len(names)), place.names)
        wrong += ask(sample, place, warm, names, place.names)
    for name in names:
        got = answer(chance.choice([cold, warm]), QUESTIONS[name])
        if not isinstance(got, Answer) or got.same != sample.truth[name].same:
            wrong.append(f"{place}: {name}: not the truth once the file is whole again: {str(got)[:300]}")
    return wrong


def is_traceless(sample: Made, place: Place) -> bool:
    """Whether nothing is left that could tell of what is gone (docs/damage.md, "What a removed file leaves behind").

    That is a journal, of which no other file speaks, and the newest transaction when no checkpoint follows it.
    """
    if place.bit is not None:
        return False
    if place.path.suffix == ".sealed":
        return True
    writer = place.path.relative_to(sample.root / "store").parts[0] if "transactions" in place.path.parts else None
    newest = writer and opened(sample.root).workspace(writer).catalog.load().revision
    return writer is not None and place.path.suffix == ".txn" and int(place.path.parent.name) == newest


@pytest.mark.in_parts(3)
@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_the_truth_or_names_what_is_missing(made: Made, kind: str) -> None:
    chance = random.Random(f"{SEED} {kind}")  # noqa: S311 - chosen, not secret
    flips = [Place(path, bit) for path in chance.sample(made.files(kind), 1) for bit in bits(path, 1, chance)]
    gone = [place for path in made.files(kind) if not is_traceless(made, place := Place(path, None))]
    place = chance.choice([*chance.sample(flips, 1), *chance.sample(gone, min(len(gone), 1))])
    assert check(made, place, chance, 4) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_file_that_an_answer_reads_may_be_damaged_or_gone(made: Made, kind: str) -> None:
    chance = random.Random(f"{SEED + 1} {kind}")  # noqa: S311 - chosen, not secret
    wrong: list[str] = []
    for path in made.files(kind):
        if kind == "shard" and path.parent != min(path.parent.parent.iterdir()):
            continue  # the others have the same files
        places = [Place(path, None), *(Place(path, bit) for bit in bits(path, 1, chance))]
        wrong += [text for place in places if not is_traceless(made, place) for text in check(made, place, chance, 9)]
    assert wrong == []
