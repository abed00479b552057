"""Fixtures of the tests that these tests share."""

from tests.conftest import repository

__all__ = ["repository"]
