"""A job without pandas: Arrow looks for it whenever it makes an array of a list, and its import takes 0.3 s of CPU.

custody uses none. Where it is installed, for Airflow or PySpark, a job of a second would spend a quarter of it so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder

_NAME = "pandas"


@contextmanager
def without_pandas() -> Iterator[None]:
    """Let pandas count as not installed, unless it is imported already."""
    finder = _Nothing()
    # In front of all other finders. `sys.modules[…] = None` is no way: compiled code takes the None for the module.
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Nothing(MetaPathFinder):
    """Finds pandas nowhere, and leaves everything else to others."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Refuse pandas.

        Raises:
            ModuleNotFoundError: it is pandas.
        """
        if fullname == _NAME:
            raise ModuleNotFoundError(f"No module named {_NAME!r}: a job of custody does without it", name=_NAME)
