"""The engine's process as it is started for users: these tests are of its start, its limits and its end."""

from __future__ import annotations

import subprocess

import pytest


@pytest.fixture(autouse=True)
def _engines_begin_as_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("custody.sql.client.subprocess", subprocess)
