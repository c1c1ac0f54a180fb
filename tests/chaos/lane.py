"""One topology that lives long: a broker, the processes, a store; rounds of faults, one on top of the other."""

from __future__ import annotations

import asyncio
import json
import random
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from consumers import topics
from consumers.kafka import admin
from monitor.config import Settings, assembly_policy, load
from monitor.judging.prompt import load as load_prompt
from monitor.rubrics import RUBRICS
from tests.chaos.check import Observed, Report, compare, missing
from tests.chaos.faults import FAULTS
from tests.chaos.fleet import Fleet
from tests.chaos.load import Load, Truth
from tests.chaos.network import ProxiedBroker, Proxy
from tests.chaos.plan import Plan
from tests.chaos.reference import Reference, Segment
from tests.chaos.results import Result
from tests.chaos.sender import Sender
from tests.chaos.settings import ASSISTANTS, PARTITIONS, POLICY, SALT, values
from tests.chaos.stores import Stores
from tests.chaos.tap import Tap
from tests.services.ports import Port
from tests.services.postgres import PostgresServer
from tests.services.process import ServiceError

LOAD_S: Final = 180.0
LEAD_S: Final = (1.0, 4.0)
TAIL_S: Final = 2.0
SETTLE_S: Final = 150.0
GROUPS: Final = {
    "assemble": ("events",),
    "sample": ("sessions",),
    "judge": ("jobs_urgent", "jobs_routine"),
    "record": ("decisions", "judgements"),
}


class Lane:
    """Runs rounds. `folder` takes its logs and data; `store` is `sqlite` or `postgresql`."""

    def __init__(self, number: int, folder: Path, store: str, *, named: bool = False) -> None:
        self.number = number
        self.folder = folder
        self.store_folder = folder / "store"
        self.broker = ProxiedBroker(folder / "broker")
        self.proxy = Proxy(self.broker.proxy.number, self.broker.behind.number)
        self.postgres = PostgresServer() if store == "postgresql" else None
        self.postgres_address = ""
        self._named = named
        self._web = Port()
        self._config = folder / "config.yaml"
        self._values: dict[str, Any] = {}
        self._partitions: dict[str, list[TopicPartition]] = {}
        self._truth = Truth()
        self._observed = Observed()
        self._known: set[Segment] = set()
        self._prompts = 0
        self._last = Report()

    # -- starting and stopping -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything, and wait until the processes have taken their places."""
        self.store_folder.mkdir(parents=True)
        await asyncio.to_thread(self.broker.start)
        await self.proxy.start()
        store_url = await asyncio.to_thread(self._store_url)
        self._values = values(self.broker.proxy.number, store_url, self.folder / "policy.yaml", self._web.number)
        self._write_config()
        settings = self.settings
        self._topics = settings.topics
        await topics.create(self._direct)
        self.reference = Reference(
            settings.topics.events,
            PARTITIONS,
            assembly_policy(settings),
            salt=SALT.encode(),
            assistants=ASSISTANTS,
        )
        self.new_policy(random.Random(self.number))
        self._note_prompt()
        self._stores = await asyncio.to_thread(
            Stores, settings.store.url, f"sqlite:///{self.folder / 'reference.sqlite'}"
        )
        await self._connect(settings)
        counts = {"assemble": 2, "sample": 2, "judge": 2, "record": 2 if self.postgres else 1, "web": 1}
        self.fleet = Fleet(self._config, self.folder, counts, named=self._named, limited=self.postgres is None)
        self.fleet.start()
        await self._until_up()

    async def _until_up(self) -> None:
        """Wait until the samplers' policy has gone all the way: then every group has been there."""
        limit = time.monotonic() + SETTLE_S
        while "backslide_stratum_rate_ratio{" not in await asyncio.to_thread(self._metrics):
            if time.monotonic() > limit:
                raise ServiceError(
                    f"the pipeline did not come up in {SETTLE_S:.0f} s; its logs are in {self.folder}"
                )
            await asyncio.sleep(0.3)
        await self._settled(SETTLE_S)

    async def _connect(self, settings: Settings) -> None:
        self._partitions = {
            spec.name: [TopicPartition(spec.name, number) for number in range(spec.partitions)]
            for spec in topics.topic_specs(settings)
        }
        everything = [place for places in self._partitions.values() for place in places]
        self._tap = Tap(self.broker.bootstrap, everything, self._take)
        self._sender = Sender(self.broker.bootstrap, settings.topics.events, self._truth)
        self._admin = admin(self._direct)
        for client in (self._tap, self._sender, self._admin):
            await client.start()

    async def stop(self) -> list[str]:
        """Stop everything, and compute the totals again; give what is wrong with that."""
        untidy = await self.fleet.stop()
        findings = [f"{end.member} ended with {end.status} at the last SIGTERM" for end in untidy]
        findings += await asyncio.to_thread(self._stores.rebuild)
        await self._tap.stop()
        await self._sender.stop()
        await self._admin.close()
        await asyncio.to_thread(self._stores.close)
        await self.close()
        return findings

    async def close(self) -> None:
        """Give up what outlives a start that failed."""
        await self.proxy.stop()
        await asyncio.to_thread(self.broker.close)
        if self.postgres is not None:
            await asyncio.to_thread(self.postgres.close)
        self._web.release()

    def _store_url(self) -> str:
        if self.postgres is None:
            return f"sqlite:///{self.store_folder / 'store.sqlite'}"
        url = self.postgres.start().database()
        self.postgres_address = url.replace("postgresql+psycopg", "postgresql")
        return url

    # -- settings ------------------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """The settings that the processes have."""
        return load(None, {**self._values})

    @property
    def _direct(self) -> Settings:
        kafka = self._values["kafka"] | {"bootstrap_servers": self.broker.bootstrap}
        return load(None, {**self._values, "kafka": kafka})

    def _write_config(self) -> None:
        _replace(self._config, json.dumps(self._values))

    def write_policy(self, text: str) -> None:
        """Change the policy file in one step."""
        _replace(self.folder / "policy.yaml", text)

    def new_policy(self, dice: random.Random) -> None:
        """Bring a new policy into force."""
        text = POLICY.format(corrected=dice.choice((0.8, 0.9, 1.0)), base=dice.choice((0.3, 0.4, 0.5, 0.6)))
        self.reference.add_policy(text)
        self.write_policy(text)

    def new_prompt(self, dice: random.Random) -> None:
        """Change settings so that processes that start from now on judge with another prompt."""
        self._prompts += 1
        self._values["judge"]["constraints"] = {"*": f"Version {self._prompts}: {dice.getrandbits(32)}."}
        self._note_prompt()
        self._write_config()

    def _note_prompt(self) -> None:
        constraints = self._values["judge"]["constraints"]["*"]
        self.reference.prompts |= {load_prompt(name, constraints=constraints).prompt_hash for name in RUBRICS}

    # -- a round -------------------------------------------------------------------------------------------

    async def round(self, plan: Plan) -> Result:
        """Send load, let the faults happen, wait until all is quiet, and compare."""
        started = time.monotonic()
        dice = random.Random(f"{plan.seed}/faults")
        records, exits, jobs = self._truth.records, len(self.fleet.exits), len(self._observed.jobs)
        enough = asyncio.Event()
        sending = asyncio.create_task(
            self._sender.send(Load(plan.seed, f"r{plan.number}", LOAD_S, PARTITIONS), enough)
        )
        await asyncio.gather(*(self._fault(name, dice) for name in plan.faults))
        over = time.time()
        await asyncio.sleep(TAIL_S)
        enough.set()
        await sending
        waiting = await self._settled(SETTLE_S)
        report = await self._compare(waiting)
        fresh = self.reference.segments.keys() - self._known
        self._known |= fresh
        waits = await asyncio.to_thread(self._stores.waits, self.reference, dict.fromkeys(fresh, over))
        result = Result(
            number=plan.number,
            seed=plan.seed,
            faults=list(plan.faults),
            lane=self.number,
            events=self._truth.records - records,
            sessions=len(fresh),
            jobs=len(self._observed.jobs) - jobs,
            copies=report.copies - self._last.copies,
            superseded=report.superseded - self._last.superseded,
            report=report,
            recovery_s=round(max(waits, default=0.0), 2),
            took_s=round(time.monotonic() - started, 1),
            exits=self.fleet.exits[exits:],
        )
        self._last = report
        return result

    async def _fault(self, name: str, dice: random.Random) -> None:
        own = random.Random(f"{dice.getrandbits(64)}/{name}")
        await asyncio.sleep(own.uniform(*LEAD_S))
        await FAULTS[name].inject(self, own)

    async def _settled(self, within_s: float) -> list[str]:
        """Wait until everything has gone all the way and is committed; give what did not in that time."""
        limit = time.monotonic() + within_s
        while True:
            waiting = await self._waiting()
            if not waiting or time.monotonic() > limit:
                return waiting
            await asyncio.sleep(0.3)

    async def _waiting(self) -> list[str]:
        try:
            # First the commits: what was committed by then is read by then.
            waiting = await self._uncommitted()
            await self._tap.catch_up()
        except KafkaError as error:
            return [f"the broker: {type(error).__name__}"]
        # In a thread, since the proxy lives in this loop.
        return waiting or await asyncio.to_thread(self._missing)

    def _missing(self) -> list[str]:
        found = list(missing(self.reference, self._observed))
        return found or list(self._stores.waiting(self.reference, self._observed))

    async def _uncommitted(self) -> list[str]:
        ends = await self._tap.ends()
        waiting = []
        for group, attributes in GROUPS.items():
            commits = await self._admin.list_consumer_group_offsets(f"backslide-{group}")
            for topic in (getattr(self._topics, attribute) for attribute in attributes):
                for place in self._partitions[topic]:
                    commit = commits.get(place)
                    left = ends[place] - max(commit.offset if commit else 0, 0)
                    if left:
                        waiting.append(f"{group} has {left} records of {topic}[{place.partition}] to commit")
        return waiting

    @property
    def topics(self) -> list[str]:
        """All topics."""
        return list(self._partitions)

    async def commits(self) -> dict[str, dict[str, tuple[int, str]]]:
        """Give what every group has committed: group -> partition -> offset and metadata."""
        found = {group: await self._admin.list_consumer_group_offsets(f"backslide-{group}") for group in GROUPS}
        return {
            group: {f"{tp.topic}/{tp.partition}": (item.offset, item.metadata) for tp, item in commits.items()}
            for group, commits in found.items()
        }

    async def _compare(self, waiting: list[str]) -> Report:
        await asyncio.to_thread(asyncio.run, self._judge())
        report = await asyncio.to_thread(compare, self.reference, self._observed, self._truth)
        if waiting:
            report.add("lost", f"in {SETTLE_S:.0f} s", waiting)
        await asyncio.to_thread(self._compare_stores, report)
        return report

    async def _judge(self) -> None:
        for jobs in self._observed.jobs.values():
            for job in jobs.values():
                await self.reference.judged(job)

    def _compare_stores(self, report: Report) -> None:
        self._stores.feed(self.reference, self._observed)
        self._stores.compare(self.reference, self._observed, report)
        self._stores.compare_metrics(self._metrics(), report)

    def _metrics(self) -> str:
        address = f"http://127.0.0.1:{self._web.number}/metrics"
        limit = time.monotonic() + 30.0
        while True:
            try:
                with urllib.request.urlopen(address, timeout=5) as answer:
                    return str(answer.read().decode())
            except OSError:
                if time.monotonic() > limit:
                    return ""
                time.sleep(0.3)

    # -- what comes by -------------------------------------------------------------------------------------

    def _take(self, record: Any) -> None:
        names = self._topics
        if record.topic == names.events:
            self.reference.apply(record)
        elif record.topic == names.sessions:
            self._observed.session(record.value)
        elif record.topic == names.decisions:
            self._observed.decision(record.value)
        elif record.topic in {names.jobs_urgent, names.jobs_routine}:
            self._observed.job(record.value)
        elif record.topic == names.judgements:
            self._observed.judgement(record.value)
        else:
            self._observed.letter(record)


def _replace(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
