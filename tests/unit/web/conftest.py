"""A store with a few sessions, and a client of the pages."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from monitor.store import Store
from monitor.web import create_app
from tests.unit.store.builders import RUBRICS


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path}/store.sqlite", rubrics=RUBRICS, clock=lambda: 1_800_000_000.0)
    yield opened
    opened.close()


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    with TestClient(create_app(store), base_url="http://localhost") as opened:
        yield opened
