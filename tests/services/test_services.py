"""The services themselves: what every other test on them takes for granted."""

import asyncio
import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.services import parts
from tests.services.broker import Broker, answers
from tests.services.chromium import dump_dom, screenshot
from tests.services.kafka import KafkaBroker, default_cache, ensure_jars
from tests.services.ports import Port
from tests.services.process import Child, ServiceError
from tests.services.prometheus import PrometheusServer, check_metrics
from tests.services.tansu import TansuBroker

GOOD = """\
# HELP backslide_turns_total Turns read.
# TYPE backslide_turns_total counter
backslide_turns_total{outcome="kept"} 3
"""
PAGE = "<title>raw</title><p id=p></p><script>p.textContent='made ' + 'by script'</script>"


async def test_kafka_produces_and_consumes(kafka: KafkaBroker, topic_prefix: str) -> None:
    topic = f"{topic_prefix}turns"
    await create(kafka, topic)
    await produce(kafka, topic, [b"one", b"two", b"three"])
    assert await consume(kafka, topic, 3) == [b"one", b"two", b"three"]


async def test_kafka_topic_setting_decides_on_size(kafka: KafkaBroker, topic_prefix: str) -> None:
    topic = f"{topic_prefix}large"
    await create(kafka, topic, {"max.message.bytes": str(8 << 20)})
    await produce(kafka, topic, [b"x" * (6 << 20)])
    assert len((await consume(kafka, topic, 1))[0]) == 6 << 20


async def test_kafka_keeps_data_over_kill_and_restart(
    fresh_kafka: Callable[..., KafkaBroker], topic_prefix: str
) -> None:
    broker = fresh_kafka(heap="256m")
    topic, address = f"{topic_prefix}kept", broker.bootstrap
    await create(broker, topic)
    await produce(broker, topic, [b"before"])
    broker.kill()
    assert not broker.alive
    assert not answers(broker_port(broker))
    broker.start()
    await produce(broker, topic, [b"after kill"])
    broker.restart()
    await produce(broker, topic, [b"after restart"])
    assert broker.bootstrap == address
    assert await consume(broker, topic, 3) == [b"before", b"after kill", b"after restart"]


async def test_kafka_pauses_and_resumes(fresh_kafka: Callable[..., KafkaBroker], topic_prefix: str) -> None:
    broker = fresh_kafka(heap="256m")
    topic = f"{topic_prefix}paused"
    await create(broker, topic)
    broker.pause()
    assert not answers(broker_port(broker), timeout=0.5)
    assert broker.alive
    broker.resume()
    await produce(broker, topic, [b"later"])
    assert await consume(broker, topic, 1) == [b"later"]


def test_kafka_that_cannot_start_shows_its_log(kafka_jars: Path, tmp_path: Path) -> None:
    broker = KafkaBroker(tmp_path, heap="1k")
    with pytest.raises(ServiceError, match=r"(?s)failed.*heap"):
        broker.start()
    broker.close()


def test_kafka_jars_are_not_fetched_twice(kafka_jars: Path) -> None:
    began = time.monotonic()
    assert ensure_jars(default_cache()) == kafka_jars
    assert time.monotonic() - began < 0.5


async def test_tansu_produces_and_consumes(tmp_path: Path, topic_prefix: str) -> None:
    with TansuBroker(tmp_path) as broker:
        topic = f"{topic_prefix}turns"
        await create(broker, topic)
        await produce(broker, topic, [b"one", b"two"], idempotent=False)
        assert await consume(broker, topic, 2) == [b"one", b"two"]
        broker.restart()
        assert answers(broker_port(broker))
        broker.kill()
        assert not broker.alive


def test_services_die_with_the_test_process(tmp_path: Path) -> None:
    """Started from a thread that ends at once, a broker lives on; it dies with its process."""
    code = (
        "import sys, threading, time; from pathlib import Path\n"
        "from tests.services.tansu import TansuBroker\n"
        "broker = TansuBroker(Path(sys.argv[1]))\n"
        "thread = threading.Thread(target=broker.start); thread.start(); thread.join(); time.sleep(0.3)\n"
        "print(broker.pid, broker.alive, flush=True); time.sleep(60)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], cwd=parts.checkout(), stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    pid, alive = owner.stdout.readline().split()
    owner.kill()
    owner.communicate()
    assert alive == "True"
    assert gone(int(pid), seconds=5)


def test_stop_is_bounded(tmp_path: Path) -> None:
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); "
    child = Child([sys.executable, "-c", stubborn + "time.sleep(60)"], tmp_path / "stubborn.log")
    while "1" not in child.tail():
        time.sleep(0.01)
    child.stop(grace=0.3)
    assert not child.alive


def test_a_paused_process_stops_in_order(tmp_path: Path) -> None:
    polite = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('bye'))); "
    child = Child([sys.executable, "-c", polite + "print(1, flush=True); time.sleep(60)"], tmp_path / "polite.log")
    while "1" not in child.tail():
        time.sleep(0.01)
    child.pause()
    child.pause()  # a second one changes nothing, and does not hang
    child.stop()
    child.pause()  # nor one after the end
    assert not child.alive
    assert child.tail().endswith("bye")


def test_two_claims_never_share_a_port() -> None:
    ports = [Port() for _ in range(50)]
    assert len({port.number for port in ports}) == 50
    for port in ports:
        port.release()


def test_missing_part_skips_here_and_fails_under_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="thing is missing: get it"):
        parts.require("thing", False, "get it")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="thing is missing: get it"):
        parts.require("thing", False, "get it")
    parts.require("thing", True, "get it")


def test_promtool_accepts_good_and_rejects_bad(promtool: Path) -> None:
    check_metrics(GOOD)
    with pytest.raises(AssertionError, match="help"):
        check_metrics("# TYPE backslide_turns_total counter\nbackslide_turns_total 3\n")
    with pytest.raises(AssertionError):
        check_metrics("backslide turns 3 4 5\n")


def test_prometheus_scrapes_and_answers(prometheus: Path, tmp_path: Path, site: str) -> None:
    with PrometheusServer(tmp_path, {"monitor": site.removeprefix("http://")}) as server:
        sample = server.until("backslide_turns_total")[0]
        assert sample["metric"]["job"] == "monitor"
        assert sample["value"][1] == "3"
        assert server.query("no_such_metric") == []
        with pytest.raises(ServiceError, match="parse error"):
            server.query("sum(")


def test_chromium_runs_scripts_and_draws(chromium: Path, tmp_path: Path, site: str) -> None:
    assert "made by script" in dump_dom(f"{site}/page")
    picture = tmp_path / "page.png"
    screenshot(f"{site}/page", picture, width=400, height=300)
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")) == (400, 300)


def test_chromium_names_an_address_where_nothing_listens(chromium: Path) -> None:
    port = Port()
    with pytest.raises(ServiceError, match="nothing listens"):
        dump_dom(f"http://127.0.0.1:{port.number}/")
    port.release()


class Site(http.server.BaseHTTPRequestHandler):
    """One page, and metrics."""

    def do_GET(self) -> None:
        body, kind = (GOOD, "text/plain; version=0.0.4") if self.path == "/metrics" else (PAGE, "text/html")
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


async def create(broker: Broker, topic: str, settings: dict[str, str] | None = None) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, 1, topic_configs=settings)])
    finally:
        await admin.close()


async def produce(broker: Broker, topic: str, values: list[bytes], idempotent: bool = True) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap, acks="all", enable_idempotence=idempotent, max_request_size=8 << 20
    )
    async with asyncio.timeout(30), producer:
        for value in values:
            await producer.send_and_wait(topic, value)


async def consume(broker: Broker, topic: str, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, group_id=f"{topic}-readers", auto_offset_reset="earliest"
    )
    async with asyncio.timeout(30), consumer:
        return [(await consumer.getone()).value for _ in range(count)]


def broker_port(broker: Broker) -> int:
    return int(broker.bootstrap.rpartition(":")[2])


def gone(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if state(pid) in ("", "Z"):
            return True
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    return False


def state(pid: int) -> str:
    """Return the process's letter in /proc (Z: dead, and nobody has asked yet), or nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
