"""Questions by batch: collected, sent together at half the price, answered within a day, mostly within an hour.

    post = BatchPost(client, notes, policy)
    task = asyncio.create_task(post.run())
    reply = await post.answer(question)       # None when `stop` came first: ask again after a restart

Nothing is lost or paid for twice by a crash. A question has the same id whenever its job comes again, and what
the notes tell of an id is known to every process: whoever has the job in hand then waits for the batch that is
under way, or reads the results that lie there. A process that died between creating a batch and noting its id
leaves a claim without a batch; that is looked for at the provider, by time and size, before its questions are sent
again.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec
import structlog

from monitor.errors import JudgeError, JudgeFatal
from monitor.judging.batch_book import BatchBook, Claim, Dropped, Entry, Note, Opened
from monitor.judging.deferred import DeferredRun, Question
from monitor.judging.flow import Failure, Reply

MAX_FAILURES: Final = 5
KEEP_S: Final = 2 * 24 * 3_600.0
_KEPT_RESULTS: Final = 4
_SKEW_S: Final = 300.0
# The provider has said no, so that there is no batch; after anything else there may be one.
_REFUSED: Final = frozenset({"rate_limit", "overloaded"})


Charge: TypeAlias = Callable[[Question, Reply], Reply]
"""Adds what a reply to a question cost, and tells whoever keeps account."""


class BatchInfo(msgspec.Struct, kw_only=True, frozen=True):
    """A batch as the provider lists it. `created_at` is Unix time, `size` how many requests it holds."""

    id: str
    ended: bool
    created_at: float
    size: int


class BatchClient(Protocol):
    """A provider's batches. Every call raises `JudgeUnavailable` or `JudgeFatal`."""

    async def create(self, questions: Sequence[Question]) -> str:
        """Create a batch and give its id."""
        ...

    async def ended(self, batch: str) -> bool:
        """Say whether a batch has all its results."""
        ...

    async def results(self, batch: str) -> dict[str, Reply]:
        """Give the replies of a batch that has ended, by question."""
        ...

    async def cancel(self, batch: str) -> None:
        """Ask for a batch to end early."""
        ...

    async def recent(self) -> list[BatchInfo]:
        """List the newest batches."""
        ...


class Notes(Protocol):
    """The notes that all processes share."""

    @property
    def book(self) -> BatchBook:
        """What they add up to."""
        ...

    async def write(self, note: Note) -> None:
        """Write a note durably, and return when `book` has it."""
        ...


class BatchPolicy(msgspec.Struct, kw_only=True, frozen=True):
    """When a batch is sent and looked after, in seconds.

    It goes when it is full or its oldest question has waited `max_wait_s`. A claim is looked for at the provider
    when there is no batch of it after `grace_s`. `cancel`: batches of this process end with it.
    """

    max_requests: int = 1_000
    max_wait_s: float = 300.0
    poll_s: float = 30.0
    grace_s: float = 180.0
    cancel: bool = False


class _Waiting(msgspec.Struct, kw_only=True, eq=False):
    question: Question
    since: float
    reply: asyncio.Future[Reply | None]


class BatchPost:
    """Takes questions and brings replies, each charged before anyone reads it.

    `clock` is monotonic, `wall` Unix time, both in seconds.
    """

    def __init__(
        self,
        client: BatchClient,
        notes: Notes,
        policy: BatchPolicy | None = None,
        *,
        charge: Charge | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._notes = notes
        self._policy = policy or BatchPolicy()
        self._charge = charge
        self._clock = clock
        self._wall = wall
        self._waiting: dict[str, _Waiting] = {}
        self._polled: dict[str, float] = {}
        self._results: OrderedDict[str, dict[str, Reply]] = OrderedDict()
        self._mine: set[str] = set()  # batches that this process created and that haven't ended
        self._busy = asyncio.Lock()
        self._not_before = 0.0
        self._stopping = False
        self._log = structlog.get_logger().bind(process="judge")
        self.trouble: str | None = None
        """Why the provider's batches can't be used just now; None when they can."""

    async def answer(self, question: Question) -> Reply | None:
        """Wait for the reply to a question, for a day if need be; None when `stop` came first."""
        if self._stopping:
            return None
        waiting = self._waiting.get(question.id)
        if waiting is None:
            reply: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
            waiting = self._waiting[question.id] = _Waiting(question=question, since=self._clock(), reply=reply)
        return await asyncio.shield(waiting.reply)

    async def run(self) -> None:
        """Look after batches until canceled. Raises what writing notes raises."""
        while True:
            await self.step()
            await asyncio.sleep(min(1.0, self._policy.poll_s))

    async def step(self) -> None:
        """Send what is due and collect what is there, once."""
        try:
            async with self._busy:
                await self._send()
                for entry in self._entries():
                    await self._collect(entry)
        except JudgeError as error:
            if self.trouble != error.error_type:
                self._log.error("batches_fail", error_type=error.error_type, error=str(error))
            self.trouble = error.error_type
        else:
            self.trouble = None
        self._notes.book.prune(self._wall() - KEEP_S)

    async def stop(self) -> None:
        """Let everyone who waits go; with the policy's `cancel` also end the batches of this process."""
        self._stopping = True
        for waiting in self._waiting.values():
            if not waiting.reply.done():
                waiting.reply.set_result(None)
        self._waiting.clear()
        if self._policy.cancel:
            async with self._busy:  # a batch that is being created is to be known before
                for batch in self._mine:
                    await self._cancel(batch)

    # -- sending -------------------------------------------------------------------------------------------

    async def _send(self) -> None:
        book, policy = self._notes.book, self._policy
        if self._clock() < self._not_before:
            return
        free = [item for item in self._waiting.values() if book.entry_of(item.question.id) is None]
        while free and not self._stopping:
            late = self._clock() - free[0].since >= policy.max_wait_s
            if len(free) < policy.max_requests and not late:
                return
            batch, free = free[: policy.max_requests], free[policy.max_requests :]
            await self._open([item.question for item in batch])

    async def _create(self, key: str, questions: Sequence[Question]) -> str:
        try:
            return await self._client.create(questions)
        except JudgeError as error:
            self._not_before = self._clock() + max(self._policy.poll_s, error.retry_after or 0.0)
            if isinstance(error, JudgeFatal) or error.error_type in _REFUSED:
                await self._notes.write(Dropped(key=key))
            raise

    async def _open(self, questions: Sequence[Question]) -> None:
        key = uuid.uuid4().hex
        await self._notes.write(Claim(key=key, at=self._wall(), ids=[question.id for question in questions]))
        entry = self._notes.book.entry(key)
        own = [question for question in questions if entry is not None and question.id in set(entry.ids)]
        if not own:
            return  # another process was first with all of them
        batch = await self._create(key, own)
        self._mine.add(batch)
        await self._notes.write(Opened(key=key, batch=batch))
        self._log.info("batch_created", batch=batch, requests=len(own))

    # -- collecting ----------------------------------------------------------------------------------------

    def _entries(self) -> list[Entry]:
        """Give the claims that someone here waits for."""
        found = (self._notes.book.entry_of(question_id) for question_id in self._waiting)
        return list({entry.key: entry for entry in found if entry is not None}.values())

    async def _collect(self, entry: Entry) -> None:
        if entry.batch is None:
            if self._wall() - entry.at >= self._policy.grace_s:
                await self._adopt(entry)
            return
        results = self._results.get(entry.batch)
        if results is None:
            results = await self._fetched(entry.batch)
        if results is not None:
            self._deliver(entry, results)

    async def _fetched(self, batch: str) -> dict[str, Reply] | None:
        now = self._clock()
        if now - self._polled.get(batch, -self._policy.poll_s) < self._policy.poll_s:
            return None
        self._polled[batch] = now
        try:
            if not await self._client.ended(batch):
                return None
            results = await self._client.results(batch)
        except JudgeFatal as error:
            if error.error_type != "not_found":
                raise
            results = {}  # deleted, or archived long ago: what it held is asked again
        del self._polled[batch]
        self._mine.discard(batch)
        self._results[batch] = results
        if len(self._results) > _KEPT_RESULTS:
            self._results.popitem(last=False)
        self._log.info("batch_ended", batch=batch, results=len(results))
        return results

    def _deliver(self, entry: Entry, results: dict[str, Reply]) -> None:
        for question_id in entry.ids:
            waiting = self._waiting.pop(question_id, None)
            if waiting is None or waiting.reply.done():
                continue
            reply = results.get(question_id, _MISSING)
            waiting.reply.set_result(reply if self._charge is None else self._charge(waiting.question, reply))

    async def _adopt(self, entry: Entry) -> None:
        """Look for the batch that came of a claim; without one its questions are free again."""
        known = self._notes.book.batches()
        found = [
            info
            for info in await self._client.recent()
            if info.id not in known and info.created_at >= entry.at - _SKEW_S and info.size == len(entry.ids)
        ]
        if found:
            batch = min(found, key=lambda info: info.created_at).id
            await self._notes.write(Opened(key=entry.key, batch=batch))
        else:
            await self._notes.write(Dropped(key=entry.key))
        self._log.warning("batch_recovered", found=bool(found), requests=len(entry.ids))

    async def _cancel(self, batch: str) -> None:
        try:
            await self._client.cancel(batch)
        except JudgeError as error:
            self._log.warning("batch_not_canceled", batch=batch, error_type=error.error_type)


_MISSING: Final = Failure(error_type="bad_response", message="the batch has ended without an answer")


async def answered(run: DeferredRun, post: BatchPost) -> bool:
    """Put the questions of a run to a post until it is done; False when that was stopped.

    After `MAX_FAILURES` failed attempts a question gets no other: its window is `Unscored(unavailable)`.
    """
    asked: set[str] = set()
    tasks: dict[asyncio.Task[Reply | None], Question] = {}
    try:
        while not run.done:
            for question in run.questions:
                if question.id not in asked:
                    asked.add(question.id)
                    tasks[asyncio.create_task(post.answer(question))] = question
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not _pass_on(run, ((tasks.pop(task), task.result()) for task in done)):
                return False
        return True
    finally:
        for task in tasks:
            task.cancel()


def _pass_on(run: DeferredRun, replies: Iterable[tuple[Question, Reply | None]]) -> bool:
    for question, reply in replies:
        if reply is None:
            return False
        run.answer(question.id, _bounded(question, reply))
    return True


def _bounded(question: Question, reply: Reply) -> Reply:
    if isinstance(reply, Failure) and reply.final is None and question.number >= MAX_FAILURES:
        return msgspec.structs.replace(reply, final="unavailable")
    return reply
