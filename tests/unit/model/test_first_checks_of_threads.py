"""The first checks of a process come from many threads: none of them ends it."""

from __future__ import annotations

from tests.support import python

# What msgspec knows of a type is made when it is first asked for: each try is a process that has not asked yet, whose
# threads are switched as often as can be.
_TRIES = """
import os, sys
from threading import Barrier, Thread
from custody.model import Event, EventType, require_types

sys.setswitchinterval(1e-6)
event = Event(EventType.DROP, 1, "component", "type", "uuid", 0)

def tried():
    ready = Barrier(8)
    def check():
        ready.wait()
        require_types(event)
    threads = [Thread(target=check) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

died = 0
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        try:
            tried()
            os._exit(0)
        except BaseException:
            os._exit(1)
    died += os.waitpid(child, 0)[1] != 0
print(died, flush=True)
"""


def test_threads_that_check_the_first_events_of_a_process_do_not_end_it() -> None:
    with python(_TRIES, 60) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
