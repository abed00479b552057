"""The door for notifications of context brokers: the receiver, among other doors or as `custody ngsi serve` alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from custody.serving.access import Scope, Tokens
from custody.serving.door import Measure, Services
from custody.serving.ngsi_intake import Intake
from custody.serving.ngsi_receiver import Receiver, receiver_app
from custody.serving.route_rights import OPEN, DoorMount, DoorRoute, RouteRight, Shows

HEALTH = "/ngsi/health"


class NgsiDoor:
    """Takes notifications at `ngsi.notification_target`; the sections `receiver` and `ngsi` have its limits.

    Args:
        services: of the server.
        is_alone: whether it is all that the server has: it then checks `tokens` itself, answers `/health`, and judges
            every other path.
        tokens: asked for where it is alone; None asks for none.
    """

    name = "ngsi"

    def __init__(self, services: Services, *, is_alone: bool = False, tokens: Tokens | None = None) -> None:
        settings = services.settings
        self._services = services
        self._target = settings.ngsi.notification_target
        self._is_alone = is_alone
        self.intake = Intake(services.writer, settings.receiver.requests_max)
        self.receiver = Receiver(settings, self.intake, services.repository.quarantine, services.clock, tokens)

    def routes(self) -> Sequence[DoorRoute | DoorMount]:
        """Return the routes; one to an object takes every method, which the receiver judges."""
        if self._is_alone:
            return [DoorMount("", receiver_app(self.receiver), right=OPEN, checks_itself=True)]
        right = RouteRight(Scope.APPEND, Shows.NOTHING)
        return [
            DoorRoute(HEALTH, self.receiver.health, methods=["GET"], right=right),
            DoorRoute(self._target, self.receiver, right=right),
        ]

    def ready(self) -> str | None:
        """Return why the last batch could not be stored, or none should be."""
        return self._services.problem() or self.intake.problem

    def metrics(self) -> Iterable[Measure]:
        """Return how many notifications were stored, how many wait, and how many of each answer were given."""
        help_ = "Notifications that were answered, by the answer's name."
        for code, count in sorted(self.receiver.answers.items()):
            yield Measure("ngsi_answers", "counter", help_, count, (("answer", code),))
        yield Measure("ngsi_waiting", "gauge", "Notifications that wait or are being stored.", self.intake.waiting)

    def close(self) -> None:
        """Store what waits."""
        self.intake.close()
