"""The base of all peers: an index that is filled, asked and measured."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol

from benchmarks.index.workload import Question, Rows

Answer = list[int] | int | dict[str, int]


TIMED = 3
"""How often a question is asked by the clock, after it was asked to warm up."""


class Cost(NamedTuple):
    """Seconds on the wall and of CPU time."""

    wall: float
    cpu: float


class Peer(Protocol):
    """An index that is filled piece by piece and then asked."""

    name: str
    about: str

    def prepare(self, rows: Rows) -> Any:
        """Return the input of `add`; not measured."""
        ...

    size_bytes: int | None
    """Of the index; None for all files of the folder."""

    def add(self, prepared: Any) -> Cost | None:
        """Index a piece, durably; return what it cost where this process's clocks do not tell."""
        ...

    def finish(self) -> None:
        """Make ready for questions."""
        ...

    def measure(self, question: Question) -> tuple[Answer | None, list[float]]:
        """Return the answer and how long it took each time, in ms; None where there is no such question."""
        ...

    def agrees(self, answer: Answer, expected: Answer) -> bool:
        """Whether an answer is the right one."""
        ...

    def close(self) -> None:
        """Let go of what is no memory of this process."""
        ...


class InProcess(ABC):
    """What the peers in this process have in common."""

    size_bytes: int | None = None

    @abstractmethod
    def ask(self, question: Question) -> Answer:
        """Answer."""

    def forget_answers(self) -> None:  # noqa: B027 - most peers keep none
        """Drop what is kept of questions that were asked."""

    def measure(self, question: Question) -> tuple[Answer | None, list[float]]:
        answer = self.ask(question)  # warm
        times = []
        for _ in range(TIMED):
            self.forget_answers()
            answer, took = self.timed(question)
            times.append(took)
        return answer, times

    def timed(self, question: Question) -> tuple[Answer, float]:
        """Return the answer and how long it took, in ms."""
        begun = time.perf_counter()
        answer = self.ask(question)
        return answer, (time.perf_counter() - begun) * 1000

    def agrees(self, answer: Answer, expected: Answer) -> bool:
        return answer == expected

    def close(self) -> None:  # noqa: B027 - most peers hold nothing
        """Nothing is held."""
