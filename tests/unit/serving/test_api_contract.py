"""The API keeps to its own description, with questions that fit it and with those that do not."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from custody.clock import SystemClock
from custody.config.sections import ListenerSection
from custody.repository import Repository
from custody.serving.access import Tokens
from custody.serving.api_door import PREFIX, ApiDoor
from custody.serving.application import Access, application
from custody.serving.door import Services
from tests.support import append, event, run_steps

EXAMPLES = 5
TOKEN = "a-token-of-the-contract"  # noqa: S105 - of a repository of this test
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> schemathesis.BaseSchema:
    root = tmp_path_factory.mktemp("contract") / "repository"
    opened = Repository.create(root)
    append(opened, [event(number) for number in range(20)])
    run_steps(opened.settings)
    services = Services(Repository.open(root), opened.settings, SystemClock())
    app = application(ListenerSection(), [ApiDoor(services)], Access(Tokens([TOKEN])))
    schema = schemathesis.openapi.from_asgi(f"{PREFIX}/openapi.json", app, headers=HEADERS)
    schema.config.update(base_url=f"http://testserver{PREFIX}")
    return schema


def _looks_right(case: Case[Any]) -> bool:
    """Whether a wrong value of the query is a right one, or none, as it is sent.

    An address has texts alone: a list of one value is that value, and empty lists, objects and null are nothing.
    """
    return any(not _is_sent_as_it_is(value) for value in (case.query or {}).values())


def _is_sent_as_it_is(value: object) -> bool:
    values = value if isinstance(value, list) else [value, value]
    return len(values) > 1 and all(isinstance(each, str | int | float) for each in values)


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize(
    ("examples", "headers"),
    [
        (EXAMPLES, HEADERS),
        pytest.param(300, HEADERS, marks=pytest.mark.slow),
        pytest.param(100, {"Authorization": "Bearer none-that-is-known"}, marks=pytest.mark.slow),
        pytest.param(100, {}, marks=pytest.mark.slow),
    ],
    ids=["few", "many", "with an unknown token", "without a token"],
)
def test_every_answer_is_as_described(
    described: schemathesis.BaseSchema, mode: GenerationMode, examples: int, headers: dict[str, str]
) -> None:
    failures = []
    for result in described.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()

        @settings(max_examples=examples, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Case[Any]) -> None:
            # Not every text is a query, and not every query a SELECT: a 400 says what is wrong with it.
            not_asked: list[schemathesis.CheckFunction] = [positive_data_acceptance]
            not_asked += [negative_data_rejection] if _looks_right(case) else []
            answer = case.call_and_validate(headers=dict(headers), excluded_checks=not_asked)
            # Who brings no token that is known is told nothing.
            assert headers is HEADERS or answer.status_code >= 400

        try:
            ask()
        except BaseException as error:  # noqa: BLE001 - a group of failures, which is no Exception
            failures.append(f"{operation.label}: {error}")
    assert not failures, "\n\n".join(failures)
