"""TCP ports that stay ours while a service is down, so that it can come back on the same port."""

import errno
import os
import random
import socket
import weakref
from pathlib import Path


class Port:
    """A claim on one TCP port of 127.0.0.1, held until `release` or the end of this process.

    The TCP port itself must stay free for the service, so the claim is the UDP port of the same number:
    every test process tries that first, and the kernel drops it when the process dies.
    """

    def __init__(self) -> None:
        self.number, descriptor = _claim()
        self._release = weakref.finalize(self, os.close, descriptor)

    def release(self) -> None:
        """Give the port up. Harmless when done twice."""
        self._release()


def _claim() -> tuple[int, int]:
    numbers = _candidates()
    for number in random.SystemRandom().sample(numbers, k=min(500, len(numbers))):
        descriptor = _hold(number)
        if descriptor is None:
            continue
        if _unused(number):
            return number, descriptor
        os.close(descriptor)
    raise RuntimeError("no free port on 127.0.0.1 after 500 attempts")


def _candidates() -> range:
    """Ports below the kernel's range for outgoing connections.

    A port in that range could be taken by any client connection while its broker is being restarted.
    """
    lowest = 32768
    setting = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if setting.is_file():
        lowest = int(setting.read_text().split()[0])
    return range(15000, lowest) if lowest >= 17000 else range(15000, 60000)


def _hold(number: int) -> int | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as claim:
        if not _bind(claim, number):
            return None
        return claim.detach()


def _unused(number: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        return _bind(probe, number)


def _bind(sock: socket.socket, number: int) -> bool:
    try:
        sock.bind(("127.0.0.1", number))
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            return False
        raise
    return True
