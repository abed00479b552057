"""Types that msgspec decodes and converts to: made while the module that defines them is imported.

msgspec makes what it knows of a class, be it a structure, a dataclass or a named tuple, when it is first asked for it,
and keeps it with the class. A thread that asks meanwhile meets the half of it, and the process dies of a null pointer.

The import of a module is done by one thread, for which all others wait. So each class is made there, by a `Decoder` at
module level, or by `made_at_import` where only other modules decode it: alone, as a field of theirs, or with
`msgspec.convert`. Decoders can be shared by threads; `decode(data, type=…)` is for built-in types alone, of which
nothing is kept. `tests/unit/test_made_types.py` finds what is not made so.
"""

from __future__ import annotations

import msgspec


def made_at_import(*types: object) -> None:
    """Let msgspec make these types now; to be called at module level, below the classes that their fields name."""
    for each in types:
        msgspec.json.Decoder(each)
