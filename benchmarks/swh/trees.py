"""Repositories whose trees change commit by commit, all of a batch at once, in arrays.

A place is where a directory or a file lies in its repository; a version of it is a place and the commit that wrote it.
What a directory holds at a commit are the places in it, each in the last version so far: one search in a sorted array.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

Ids = np.ndarray
_COMMITS_MAX = 20_000
_DAY = 86_400
_WORDS = ["src", "lib", "include", "core", "util", "test", "main", "net", "doc", "api", "model", "view", "data"]
_ENDINGS = [".c", ".h", ".py", ".md", ".java", ".js", ".rs", ".txt"]


@dataclass(frozen=True)
class Repositories:
    """How many commits each repository has; commits of all are numbered in one row."""

    lengths: Ids

    @classmethod
    def drawn(cls, rng: np.random.Generator, commits: int) -> Repositories:
        """Draw repositories of so many commits in all: most are small, a few are very long."""
        longest = min(_COMMITS_MAX, max(commits // 4, 1))
        drawn = np.clip(rng.lognormal(3.5, 1.6, commits // 10 + 4), 1, longest).astype(np.int64)
        return cls(drawn[: int(np.searchsorted(np.cumsum(drawn), commits)) + 1])

    @property
    def count(self) -> int:
        return len(self.lengths)

    @property
    def commits(self) -> int:
        return int(self.lengths.sum())

    @cached_property
    def first(self) -> Ids:
        """The number of each repository's first commit."""
        first: Ids = np.cumsum(self.lengths) - self.lengths
        return first

    @cached_property
    def of_commit(self) -> Ids:
        """The repository of each commit."""
        return np.repeat(np.arange(self.count), self.lengths)

    @cached_property
    def time_of_commit(self) -> Ids:
        """Where each commit stands in its repository, from 0."""
        times: Ids = np.arange(self.commits) - self.first[self.of_commit]
        return times

    def history(self, rng: np.random.Generator) -> tuple[Ids, Ids]:
        """Return which commit follows which: mostly the one before, some branch off, one in ten merges."""
        commits, times = np.arange(self.commits), self.time_of_commit
        back = np.where(rng.random(self.commits) < 0.12, rng.geometric(0.3, self.commits) + 1, 1)
        first = commits - np.minimum(back, times)
        second = commits - np.minimum(rng.geometric(0.2, self.commits), times)
        has_first = times > 0
        has_second = has_first & (second != first) & (rng.random(self.commits) < 0.12)
        children = np.concatenate([commits[has_first], commits[has_second]])
        return children, np.concatenate([first[has_first], second[has_second]])

    def dates(self, rng: np.random.Generator) -> Ids:
        """Return the date of each commit, in seconds: days or weeks apart, some with a clock that is wrong."""
        gaps = rng.exponential(rng.lognormal(0.5, 1.0, self.count)[self.of_commit] * _DAY, self.commits)
        passed = np.cumsum(gaps)
        passed -= passed[self.first][self.of_commit]
        start = rng.integers(1_100_000_000, 1_650_000_000, self.count)[self.of_commit]
        wrong = np.where(rng.random(self.commits) < 0.02, rng.exponential(60 * _DAY, self.commits), 0)
        dates: Ids = (start + passed - wrong).astype(np.int64)
        return dates


@dataclass(frozen=True)
class Trees:
    """The versions of all directories and files of some repositories, as sorted keys: place x span + time."""

    repositories: Repositories
    span: int
    directories: Ids
    """Keys of directories' versions."""
    files: Ids
    """Keys of files' versions."""
    parent: Ids
    """The directory of each place of a directory, -1 for a root."""
    file_parent: Ids
    """The directory of each place of a file."""
    top: Ids
    """The root's place of each repository."""

    @classmethod
    def grown(cls, rng: np.random.Generator, repositories: Repositories) -> Trees:
        """Lay out a tree for each repository, and let its commits write files."""
        lengths = repositories.lengths
        sizes = np.maximum((1.2 * lengths**0.45 * rng.lognormal(0, 0.5, len(lengths))).astype(np.int64), 1)
        top = np.cumsum(sizes) - sizes
        of_place = np.repeat(np.arange(len(sizes)), sizes)
        local = np.arange(len(of_place)) - top[of_place]
        # A third lies in the place before: so some go deep, as packages of packages do.
        above = np.where(rng.random(len(local)) < 0.33, local - 1, (local * rng.random(len(local))).astype(np.int64))
        parent = np.where(local == 0, -1, top[of_place] + above)
        # Places are there from the first commit, or come later, each after the one that it lies in.
        counts = np.maximum((local / sizes[of_place]) ** 2 * 1.3 - 0.3, 0) * lengths[of_place]
        counts = np.minimum(counts.astype(np.int64), lengths[of_place] - 1)
        # One place in five holds directories only.
        held = rng.geometric(0.3, len(local)) * (rng.random(len(local)) < 0.8)
        held[top] += 2
        file_parent = np.repeat(np.arange(len(local)), held)
        span = int(lengths.max())
        edited, times = cls._edits(rng, repositories, of_place[file_parent], counts[file_parent])
        files = np.unique(
            np.concatenate([np.arange(len(file_parent)) * span + counts[file_parent], edited * span + times])
        )
        places = np.concatenate([file_parent[files // span], np.arange(len(local))])
        times = np.concatenate([files % span, counts])
        written = []
        while len(places):
            keys = np.unique(places * span + times)
            written.append(keys)
            places, times = parent[keys // span], keys % span
            places, times = places[places >= 0], times[places >= 0]
        return cls(repositories, span, np.unique(np.concatenate(written)), files, parent, file_parent, top)

    @staticmethod
    def _edits(rng: np.random.Generator, repositories: Repositories, of_file: Ids, made: Ids) -> tuple[Ids, Ids]:
        """Which files are written by which commits: some by many, one commit in ten writes none."""
        span = int(repositories.lengths.max())
        edits = rng.geometric(0.3, repositories.commits) * (rng.random(repositories.commits) < 0.9)
        of_edit = np.repeat(np.arange(repositories.commits), edits)
        repository, times = repositories.of_commit[of_edit], repositories.time_of_commit[of_edit]
        # Files stand in the order of their repositories, and there in the order in which they came.
        first = np.searchsorted(of_file, repository)
        there = np.searchsorted(of_file * span + made, repository * span + times, "right") - first
        chosen = first + (there * rng.random(len(of_edit)) ** 1.5).astype(np.int64)
        return chosen, times

    @property
    def places(self) -> int:
        return len(self.parent)

    @cached_property
    def place_of_directories(self) -> Ids:
        """The place of each directory's version."""
        return self.directories // self.span

    def is_late(self, versions: Ids) -> Ids:
        """Whether versions of directories were written after half of their repository's commits."""
        repository = np.searchsorted(self.top, self.place_of_directories[versions], "right") - 1
        late: Ids = (self.directories[versions] % self.span) * 2 > self.repositories.lengths[repository]
        return late

    def roots(self, rng: np.random.Generator) -> Ids:
        """Return the version of the root directory of each commit; one commit in fifty goes back to an earlier one."""
        times = self.repositories.time_of_commit
        times = np.where(rng.random(len(times)) < 0.02, (times * rng.random(len(times))).astype(np.int64), times)
        keys = self.top[self.repositories.of_commit] * self.span + times
        versions: Ids = np.searchsorted(self.directories, keys, "right") - 1
        return versions

    def directory_entries(self) -> tuple[Ids, Ids, pa.Array]:
        """Return version above, version below and name of each directory in a directory."""
        inner = np.flatnonzero(self.parent >= 0)
        return self._entries(inner, self.parent[inner], self.directories, _WORDS, [""])

    def file_entries(self) -> tuple[Ids, Ids, pa.Array]:
        """Return version of the directory, version of the file and name of each file in a directory."""
        return self._entries(np.arange(len(self.file_parent)), self.file_parent, self.files, _WORDS, _ENDINGS)

    def _entries(
        self, inner: Ids, outer: Ids, versions: Ids, words: list[str], endings: list[str]
    ) -> tuple[Ids, Ids, pa.Array]:
        order = np.argsort(outer, kind="stable")
        inner, outer = inner[order], outer[order]
        held = np.bincount(outer, minlength=self.places)
        start = np.cumsum(held) - held
        counts = held[self.place_of_directories]
        above = np.repeat(np.arange(len(self.directories)), counts)
        offset = np.arange(len(above)) - np.repeat(np.cumsum(counts) - counts, counts)
        entry = start[self.place_of_directories[above]] + offset
        below = np.searchsorted(versions, inner[entry] * self.span + self.directories[above] % self.span, "right") - 1
        is_there = (below >= 0) & (versions[below] // self.span == inner[entry])
        above, below, entry = above[is_there], below[is_there], entry[is_there]
        numbers = (np.arange(len(inner)) - start[outer]).tolist()
        names = [
            f"{words[place * 7 % len(words)]}{number}{endings[place % len(endings)]}".encode()
            for place, number in zip(inner.tolist(), numbers, strict=True)
        ]
        return above, below, pa.array(names, pa.binary()).take(pa.array(entry))
