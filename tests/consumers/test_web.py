"""The web process on SQLite: metrics that promtool takes, pages in a real browser, a store that comes late."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from consumers.health import Health
from consumers.record import rubric_counts
from consumers.web import METERS, is_loopback, serve
from monitor import __version__
from monitor.config import load
from monitor.errors import ConfigError
from monitor.metrics import Meters
from monitor.rubrics import RUBRICS
from monitor.store import Store
from tests.services.chromium import dump_dom
from tests.services.ports import Port
from tests.services.prometheus import check_metrics
from tests.unit.store.builders import content, decision, judgement, policy


class Place:
    """Two free ports and a store that isn't there yet."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self._ports = Port(), Port()
        self.pages = f"http://127.0.0.1:{self._ports[0].number}"
        self.metrics = f"http://127.0.0.1:{self._ports[1].number}"
        self.url = f"sqlite:///{folder}/store.sqlite"
        self.settings = load(
            None,
            {
                "store.url": self.url,
                "web.port": self._ports[0].number,
                "web.metrics_host": "127.0.0.1",
                "web.metrics_port": self._ports[1].number,
                **more,
            },
        )

    def fill(self) -> None:
        store = Store.open(self.url, rubrics=rubric_counts(RUBRICS))
        text = content("s1", "Book it for Tuesday", "Tuesday <b>it</b> is", "No, Wednesday", "Wednesday then")
        chosen = decision("s1", text=text)
        store.record([policy("base"), chosen, judgement("s1", hash_=chosen.content_hash), decision("s2")])
        store.close()

    @asynccontextmanager
    async def web(self) -> AsyncIterator[httpx.AsyncClient]:
        """Run the process in this one; its end must come within 5 s."""
        stop = asyncio.Event()
        meters = Meters(METERS, version=__version__, process="web")
        task = asyncio.create_task(serve(self.settings, meters, stop, Health(time.monotonic)))
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            try:
                await self._listening(client, task)
                yield client
            finally:
                stop.set()
                started = time.monotonic()
                await task
                assert time.monotonic() - started < 5

    async def _listening(self, client: httpx.AsyncClient, task: asyncio.Task[None]) -> None:
        for address in (self.metrics + "/healthz", self.pages + "/static/style.css"):
            while True:
                try:
                    await client.get(address)
                except httpx.ConnectError:
                    if task.done():
                        await task
                    await asyncio.sleep(0.02)
                else:
                    break

    async def ready(self, client: httpx.AsyncClient) -> None:
        limit = time.monotonic() + 20
        while (answer := await client.get(self.metrics + "/readyz")).status_code != 200:
            assert time.monotonic() < limit, answer.text
            await asyncio.sleep(0.05)


async def scrape(client: httpx.AsyncClient, place: Place) -> dict[str, float]:
    """Give the unlabeled and the summed series of a scrape that promtool has nothing against."""
    answer = await client.get(place.metrics + "/metrics")
    assert answer.status_code == 200
    await asyncio.to_thread(check_metrics, answer.text)
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


async def test_r4_one_scrape_shows_the_store_and_the_process(tmp_path: Path, promtool: Path) -> None:
    place = Place(tmp_path)
    place.fill()
    async with place.web() as client:
        await place.ready(client)
        series = await scrape(client, place)
        assert series["backslide_store_up"] == 1
        assert series["backslide_build_info"] == 1
        assert series["backslide_jobs_listed_total"] == 2
        assert series["backslide_verdicts_total"] == 1
        assert series["backslide_jobs_pending"] == 1
        assert (await client.get(place.metrics + "/healthz")).text == "ok\n"


async def test_the_pages_load_in_a_browser(tmp_path: Path, chromium: Path) -> None:
    place = Place(tmp_path)
    place.fill()
    async with place.web() as client:
        await place.ready(client)
        document = await asyncio.to_thread(dump_dom, place.pages + "/")
        assert "s1" in document
        document = await asyncio.to_thread(dump_dom, place.pages + "/sessions/t/s1/e0")
        assert "Book it for Tuesday" in document
        assert "Tuesday &lt;b&gt;it&lt;/b&gt; is" in document
        other_name = await client.get(place.pages + "/", headers={"host": "evil.example"})
        assert other_name.status_code == 400


async def test_a_store_that_comes_late_is_waited_for(tmp_path: Path, promtool: Path) -> None:
    place = Place(tmp_path)
    async with place.web() as client:
        answer = await client.get(place.metrics + "/readyz")
        assert answer.status_code == 503
        assert (await client.get(place.metrics + "/healthz")).status_code == 200
        assert (await client.get(place.pages + "/")).status_code == 503
        series = await scrape(client, place)
        assert series["backslide_store_up"] == 0
        assert series["backslide_build_info"] == 1
        assert not [name for name in series if name.startswith("backslide_jobs")]
        await asyncio.to_thread(place.fill)
        await place.ready(client)
        assert (await scrape(client, place))["backslide_verdicts_total"] == 1
        assert (await client.get(place.pages + "/")).status_code == 200


async def test_readiness_follows_a_store_that_goes_and_comes_back(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.fill()
    async with place.web() as client:
        await place.ready(client)
        store = tmp_path / "store.sqlite"
        with _without_meta(store):
            limit = time.monotonic() + 20
            while (answer := await client.get(place.metrics + "/readyz")).status_code == 200:
                assert time.monotonic() < limit
                await asyncio.sleep(0.05)
            assert "no such table: meta" in answer.text
            assert (await scrape(client, place))["backslide_store_up"] == 0
        await place.ready(client)


async def test_pages_for_others_come_with_a_warning(tmp_path: Path) -> None:
    place = Place(tmp_path, **{"web.host": "0.0.0.0"})
    place.fill()
    with capture_logs() as logs:
        async with place.web() as client:
            await place.ready(client)
            page = await client.get(place.pages + "/", headers={"host": "backslide.internal"})
    assert page.status_code == 200
    assert "ask for no password" in page.text
    warnings = [entry for entry in logs if entry["event"] == "pages_without_authentication"]
    assert [entry["log_level"] for entry in warnings] == ["warning"]
    assert warnings[0]["host"] == "0.0.0.0"


async def test_pages_on_loopback_come_without_one(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.fill()
    with capture_logs() as logs:
        async with place.web() as client:
            await place.ready(client)
            page = await client.get(place.pages + "/")
    assert "ask for no password" not in page.text
    assert "pages_without_authentication" not in [entry["event"] for entry in logs]


async def test_a_port_that_is_taken_is_a_wrong_setting(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.fill()
    async with place.web():
        meters = Meters(METERS, version=__version__, process="web")
        with pytest.raises(ConfigError, match="can't listen on"):
            await serve(place.settings, meters, asyncio.Event(), Health(time.monotonic))


async def test_a_url_that_is_none_is_refused(tmp_path: Path) -> None:
    settings = load(None, {"store.url": "nothing at all"})
    meters = Meters(METERS, version=__version__, process="web")
    with pytest.raises(ConfigError, match=r"store\.url"):
        await serve(settings, meters, asyncio.Event(), Health(time.monotonic))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.7", False),
        ("localhost.example", False),
    ],
)
def test_what_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@contextmanager
def _without_meta(store: Path) -> Iterator[None]:
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("PRAGMA busy_timeout = 10000")
        connection.execute("ALTER TABLE meta RENAME TO meta_elsewhere")
        yield
        connection.execute("ALTER TABLE meta_elsewhere RENAME TO meta")
