"""A real Prometheus server, and promtool's opinion on an exposition."""

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from tests.services.parts import INSTALL, find, program
from tests.services.ports import Port
from tests.services.process import Child, ServiceError

START_SECONDS = 30.0


class PrometheusServer:
    """Prometheus on 127.0.0.1 that scrapes the targets (job -> host:port)."""

    def __init__(
        self, folder: Path, targets: Mapping[str, str], interval: str = "1s", rules: Sequence[Path] = ()
    ) -> None:
        self.folder = folder
        self.targets = dict(targets)
        self.interval = interval
        self.rules = [str(path.resolve()) for path in rules]
        self._port = Port()
        self._child: Child | None = None

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        return f"http://127.0.0.1:{self._port.number}"

    def start(self) -> Self:
        """Start and wait until it is ready; raises ServiceError, with the end of its log, when it is not."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(self._configuration()), encoding="utf-8")
        self._child = Child(self._command(), self.folder / "prometheus.log")
        self._wait(self._child)
        return self

    def stop(self) -> None:
        """SIGTERM, bounded, then SIGKILL. Harmless when it does not run."""
        if self._child is not None:
            self._child.stop()
        self._port.release()

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Return the samples of an instant query, as Prometheus's API gives them; ServiceError when it refuses."""
        answer = json.loads(self._get("/api/v1/query?" + urllib.parse.urlencode({"query": expr})))
        if answer["status"] != "success":
            raise ServiceError(f"{expr}: {answer.get('error')}")
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def until(self, expr: str, seconds: float = 20.0) -> list[dict[str, Any]]:
        """Return the samples of a query as soon as there are any; ServiceError when none come in time.

        The first scrape comes about 5 s after the start, whatever the interval (Prometheus hands over its
        targets every 5 s).
        """
        deadline = time.monotonic() + seconds
        while not (found := self.query(expr)):
            if time.monotonic() > deadline:
                raise ServiceError(f"no sample of {expr} in {seconds:.0f} s")
            time.sleep(0.1)
        return found

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _configuration(self) -> dict[str, Any]:
        jobs = [{"job_name": job, "static_configs": [{"targets": [at]}]} for job, at in self.targets.items()]
        every = {"scrape_interval": self.interval, "scrape_timeout": self.interval}
        return {
            "global": {**every, "evaluation_interval": self.interval},
            "rule_files": self.rules,
            "scrape_configs": jobs,
        }

    def _command(self) -> list[str]:
        binary = find(["prometheus"])
        if binary is None:
            raise ServiceError(f"prometheus is missing: {INSTALL}")
        return [
            str(binary),
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{self._port.number}",
            f"--web.external-url={self.url}/",
            "--web.enable-lifecycle",
            "--enable-feature=exemplar-storage",
            "--log.level=warn",
        ]

    def _wait(self, child: Child) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            if not child.alive:
                raise ServiceError(f"prometheus ended at start:\n{child.tail()}")
            if time.monotonic() > deadline:
                child.kill()
                raise ServiceError(f"prometheus was not ready in {START_SECONDS:.0f} s:\n{child.tail()}")
            time.sleep(0.02)

    def _ready(self) -> bool:
        try:
            self._get("/-/ready")
        except (OSError, ServiceError):
            return False
        return True

    def _get(self, path: str) -> bytes:
        # Without the environment's proxies, which would not reach 127.0.0.1.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(self.url + path, timeout=10) as response:
                body: bytes = response.read()
                return body
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode("utf-8", "replace")
            raise ServiceError(f"{error.code} for {path}: {text[:1000]}") from error


def check_metrics(text: str) -> None:
    """Raise AssertionError, with promtool's words, when it has any complaint about an exposition."""
    done = subprocess.run(
        [str(program("promtool")), "check", "metrics"],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, f"promtool check metrics: exit {done.returncode}\n{done.stdout}"
