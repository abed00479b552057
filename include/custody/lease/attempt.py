"""Names of attempts: `<task>/<try>`. Of two attempts of one task the later one is meant to win."""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a piece of work."""

    task: str
    """What is tried; under Airflow `<dag>/<run>/<task>`."""
    number: int

    def __str__(self) -> str:
        return f"{self.task}/{self.number}"

    @classmethod
    def parse(cls, name: str) -> Attempt:
        """Return the attempt of a name; one that ends in no number is the first try of its task."""
        task, slash, number = name.rpartition("/")
        return cls(task, int(number)) if slash and number.isdecimal() else cls(name, 1)

    @classmethod
    def new(cls, kind: str) -> Attempt:
        """Return the only try of something that nothing else is a try of."""
        return cls(f"{kind}/{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}", 1)
