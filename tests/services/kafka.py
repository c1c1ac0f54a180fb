"""Apache Kafka without Docker: one node in KRaft mode, from jars that Maven fetches once."""

import base64
import fcntl
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.services.broker import Broker
from tests.services.parts import checkout, find
from tests.services.ports import Port
from tests.services.process import ServiceError, tail

KAFKA = "4.3.0"
LOG4J = "2.25.1"
PLUGIN = "3.8.1"
# Only the quick compiler: a third less CPU for a start, for a lower throughput that tests never reach.
QUICK = ("-XX:TieredStopAtLevel=1",)
JAVA_REMEDY = "Debian packages default-jre-headless and maven"

POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>backslide.tests</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId>
    <artifactId>maven-dependency-plugin</artifactId>
    <version>{plugin}</version>
  </plugin></plugins></build>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{kafka}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{kafka}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId>
      <version>{log4j}</version>
    </dependency>
  </dependencies>
</project>
"""

# message.max.bytes is large, so that each topic's own max.message.bytes decides. The session timeout of the
# broker is short since after a SIGKILL the controller refuses the new process until the old session ends.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
message.max.bytes=16777216
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
log.cleaner.dedupe.buffer.size=16777216
"""

LOGGING = """\
Configuration:
  status: error
  Appenders:
    Console:
      name: out
      PatternLayout:
        pattern: "%d %p %c - %m%n"
  Loggers:
    Root:
      level: warn
      AppenderRef:
        ref: out
"""


class KafkaBroker(Broker):
    """A real Apache Kafka broker and controller in one process. Its data outlives `kill` and `restart`.

    Benchmarks pass `options=()`, so that Java compiles fully.
    """

    name = "kafka"

    def __init__(self, folder: Path, heap: str = "512m", options: Sequence[str] = QUICK) -> None:
        super().__init__(folder)
        self.heap = heap
        self.options = tuple(options)
        self._controller = Port()
        self._java = ""
        self._jars = Path()

    def close(self) -> None:
        """Stop for good, and give the ports up."""
        super().close()
        self._controller.release()

    def _prepare(self) -> None:
        self._java = _program("java")
        self._jars = ensure_jars(default_cache())
        self._write_configuration()
        if not (self._data / "meta.properties").is_file():
            self._format()

    def _command(self) -> Sequence[str]:
        return self._run("kafka.Kafka", str(self._properties))

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _run(self, main: str, *arguments: str) -> list[str]:
        # No shell, so that the star reaches java, which expands it itself.
        options = [f"-Xmx{self.heap}", *self.options, f"-Dlog4j2.configurationFile={self.folder / 'log4j2.yaml'}"]
        return [self._java, *options, "-cp", f"{self._jars}/*", main, *arguments]

    def _write_configuration(self) -> None:
        text = PROPERTIES.format(
            port=self._port.number, controller=self._controller.number, data=self._data.resolve()
        )
        self._properties.write_text(text, encoding="utf-8")
        (self.folder / "log4j2.yaml").write_text(LOGGING, encoding="utf-8")

    def _format(self) -> None:
        arguments = ["format", "--standalone", "-t", _cluster_id(), "-c", str(self._properties)]
        _call(self._run("kafka.tools.StorageTool", *arguments), self.log, 60.0)


def _cluster_id() -> str:
    # The zero byte makes it start with "A": one in 64 would start with "-", and be taken for an option.
    return base64.urlsafe_b64encode(b"\0" + secrets.token_bytes(15)).decode().rstrip("=")


def default_cache() -> Path:
    """Say where this checkout keeps the jars (ignored by git)."""
    return checkout() / ".cache" / "kafka"


def jars_ready(cache: Path) -> bool:
    """Say whether the jars of the wanted versions are all there."""
    marker = cache / "jars" / ".complete"
    return marker.is_file() and marker.read_text(encoding="utf-8") == _pom()


def ensure_jars(cache: Path) -> Path:
    """Return the folder of Kafka's jars, fetched by Maven when not there yet. Safe to call concurrently."""
    jars = cache / "jars"
    if jars_ready(cache):
        return jars
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / "lock"):
        if not jars_ready(cache):
            _fetch(cache, jars)
    return jars


def _fetch(cache: Path, jars: Path) -> None:
    shutil.rmtree(jars, ignore_errors=True)  # half a set, or one of other versions
    pom = cache / "pom.xml"
    pom.write_text(_pom(), encoding="utf-8")
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={jars.resolve()}"]
    _call([_program("mvn"), "-q", "-B", "-f", str(pom), *goal], cache / "maven.log", 600.0)
    (jars / ".complete").write_text(_pom(), encoding="utf-8")


def _pom() -> str:
    return POM.format(kafka=KAFKA, log4j=LOG4J, plugin=PLUGIN)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _program(name: str) -> str:
    path = find([name])
    if path is None:
        raise ServiceError(f"{name} is missing: {JAVA_REMEDY}")
    return str(path)


def _call(command: Sequence[str], log: Path, timeout: float) -> None:
    """Run to the end, with its output added to the log; ServiceError with the end of it on failure."""
    with log.open("ab") as out:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ServiceError(f"{command[0]} took over {timeout:.0f} s:\n{tail(log)}") from error
    if done.returncode != 0:
        raise ServiceError(f"{command[0]} failed ({done.returncode}); {log}:\n{tail(log)}")
