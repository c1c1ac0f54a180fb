"""Fixtures for real services. Each is started on first use, and skips where its parts are missing."""

import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.services.chromium import browser
from tests.services.kafka import KafkaBroker, default_cache, ensure_jars, jars_ready
from tests.services.parts import INSTALL, checkout, find, program, require


def pytest_configure() -> None:
    """Give properties no deadline, since other work shares the machine; in CI a change decides, not the draw."""
    quiet = [HealthCheck.too_slow]
    settings.register_profile(
        "backslide", deadline=None, suppress_health_check=quiet, derandomize=os.environ.get("CI") == "true"
    )
    settings.load_profile("backslide")


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """Find Kafka's jars, or fetch them; skips without java, or without both mvn and jars."""
    require("java", find(["java"]) is not None, INSTALL)
    cache = default_cache()
    require("mvn", jars_ready(cache) or find(["mvn"]) is not None, INSTALL)
    return ensure_jars(cache)


@pytest.fixture(scope="session")
def kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Run one Kafka broker for the whole session: never stop it, and name topics with `topic_prefix`."""
    with _broker(tmp_path_factory.mktemp("kafka"), "512m") as broker:
        yield broker


@pytest.fixture(scope="module")
def fresh_kafka(
    kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., KafkaBroker]]:
    """Start a broker of your own (`fresh_kafka()` or `fresh_kafka(heap="256m")`), to kill or pause at will.

    All of them end with the module.
    """
    with ExitStack() as stack:

        def start(heap: str = "512m") -> KafkaBroker:
            return stack.enter_context(_broker(tmp_path_factory.mktemp("fresh-kafka"), heap))

        yield start


@pytest.fixture
def topic_prefix(request: pytest.FixtureRequest) -> str:
    """Give a prefix of topic and group names that no other test has, with a dash at its end."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-").lower()
    return f"{name[:60]}-{uuid.uuid4().hex[:8]}-"


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Find Prometheus's tool for checking metrics and rules."""
    return program("promtool")


@pytest.fixture(scope="session")
def prometheus() -> Path:
    """Find the Prometheus server's program, which `PrometheusServer` runs."""
    return program("prometheus")


@pytest.fixture(scope="session")
def chromium() -> Path:
    """Find the browser's program, which `screenshot` and `dump_dom` run."""
    path = browser()
    require("chromium", path is not None, INSTALL)
    assert path is not None
    return path


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Find real transcripts beside the checkout: ../shared/data, or data/ in the folder BACKSLIDE_SHARED.

    They are no part of the repository, so their absence always skips, under CI as well.
    """
    shared = os.environ.get("BACKSLIDE_SHARED")
    folder = (Path(shared) if shared else checkout().parent / "shared") / "data"
    if not folder.is_dir():
        pytest.skip(f"no transcripts at {folder}: set BACKSLIDE_SHARED to the folder that holds data/")
    return folder


@contextmanager
def _broker(folder: Path, heap: str) -> Iterator[KafkaBroker]:
    """Run a broker; its data goes at the end (pytest would keep it for three runs), its log stays."""
    with KafkaBroker(folder, heap) as broker:
        yield broker
    shutil.rmtree(folder / "data", ignore_errors=True)
