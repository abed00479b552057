"""Cases run one after the other, with a verdict on each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files

from custody.errors import InvalidInputError
from custody.ngsi.cases.case import EXPECT, Case, read_cases
from custody.ngsi.cases.comparing import KNOWN, differences
from custody.ngsi.cases.running import Outcome, run

_SHIPPED = "shipped"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a case is worth; `is_checked` is False where the profile expects nothing of it."""

    id: str
    title: str
    differences: tuple[str, ...]
    is_checked: bool = True

    @property
    def is_passed(self) -> bool:
        """Whether everything came out as expected."""
        return self.is_checked and not self.differences


def check_cases(
    cases: Iterable[Case], profile: str = EXPECT, run_one: Callable[[Case], Outcome] = run
) -> Iterator[Verdict]:
    """Yield the verdict on each case, which `run_one` runs: in memory, where nothing else is said.

    The profile `expect` is what custody promises. Any other names what another system does, among the alternates of
    a case: the verdict then says where custody differs from it. Of an alternate only what can be compared counts; a
    case that has none is not checked.
    """
    for case in cases:
        if case.problem:
            yield Verdict(case.id, case.title, (case.problem,))
            continue
        expected = case.expected(profile)
        if profile != EXPECT:
            expected = {key: value for key, value in expected.items() if key in KNOWN}
        if not expected:
            yield Verdict(case.id, case.title, (), is_checked=False)
            continue
        try:
            found = tuple(differences(expected, run_one(case)))
        except InvalidInputError as error:
            found = (str(error),)
        yield Verdict(case.id, case.title, found)


def profiles(cases: Iterable[Case]) -> list[str]:
    """Return the profiles that cases name, besides the one that is always there."""
    return sorted({str(item["profile"]) for case in cases for item in case.alternates if "profile" in item})


def shipped_cases() -> tuple[Case, ...]:
    """Return the cases that custody brings along."""
    folder = files("custody.ngsi.cases") / _SHIPPED
    found = sorted((item.name, item.read_bytes()) for item in folder.iterdir() if item.name.endswith(".json"))
    return tuple(case for name, data in found for case in read_cases(data, name))
