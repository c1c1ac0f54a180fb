"""Fetch what the tests need: `python -m tests.services.install`. Quick when everything is there.

It never fails: what it could not get, it names, and the tests that need it skip (or fail under CI).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.services import llama, postgres
from tests.services.chromium import browser
from tests.services.kafka import default_cache, ensure_jars, jars_ready
from tests.services.parts import find
from tests.services.process import ServiceError


@dataclass(frozen=True)
class Package:
    """A Debian package, what it is for, and whether that is there already."""

    name: str
    purpose: str
    present: bool


def packages() -> list[Package]:
    """List all packages that the tests use."""
    prometheus = find(["promtool"]) is not None and find(["prometheus"]) is not None
    fonts = Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf").is_file()
    maven = find(["mvn"]) is not None or jars_ready(default_cache())
    return [
        Package("default-jre-headless", "java, for the Kafka broker", find(["java"]) is not None),
        Package("maven", "mvn, which fetches Kafka", maven),
        Package("prometheus", "promtool and Prometheus, for metrics and rules", prometheus),
        Package("chromium", "pictures and documents of pages", browser() is not None),
        Package("postgresql", "a PostgreSQL server of the tests' own", postgres.available()),
        Package("fonts-dejavu-core", "text in those pictures", fonts),
    ]


def main() -> int:
    """Install what is missing and say what still is."""
    missing = [package for package in packages() if not package.present]
    if missing and _may_install():
        _install([package.name for package in missing])
        missing = [package for package in packages() if not package.present]
    for package in missing:
        _say(f"missing: {package.name} ({package.purpose}); as root: apt-get install {package.name}")
    _fetch_kafka()
    _fetch_llama()
    return 0


def _may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _install(names: Sequence[str]) -> None:
    _say(f"installing: {' '.join(names)}")
    _apt("update", "-q")
    _apt("install", "-y", "-q", "--no-install-recommends", *names)


def _apt(*arguments: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-o", "DPkg::Lock::Timeout=300", *arguments]
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode != 0:
        text = done.stdout.decode("utf-8", "replace")
        _say(f"{' '.join(command)} failed ({done.returncode}):\n{text[-3000:]}")


def _fetch_kafka() -> None:
    cache = default_cache()
    if jars_ready(cache):
        return
    if find(["java"]) is None or find(["mvn"]) is None:
        _say("missing: Kafka's jars (they need java and mvn); then run this again")
        return
    _say("fetching Kafka by Maven")
    try:
        ensure_jars(cache)
    except ServiceError as error:
        _say(f"missing: Kafka's jars: {error}")


def _fetch_llama() -> None:
    if llama.available():
        return
    _say(f"installing: {llama.PACKAGE}")
    # Only a finished wheel: building llama.cpp takes longer than all the tests.
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", llama.PACKAGE]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        _say(f"missing: {llama.PACKAGE} (a real inference server)")


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
