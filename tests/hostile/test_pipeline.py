"""A hostile session through the real pieces: decode, assemble, decide, judge, store, page, `/metrics`, logs."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import structlog
from starlette.testclient import TestClient

from monitor import web
from monitor.config import load as load_settings
from monitor.events import EventDecoder, Turn
from monitor.ingest.sessions import session_events
from monitor.judging.lexical import LexicalJudge
from monitor.judging.model import Completion, JudgeRequest
from monitor.replay import replay_events
from monitor.replay_summary import ReplaySummary
from monitor.rubrics import RUBRICS
from monitor.sampling.policy import parse_policy
from monitor.store import RubricCounts, SessionFilter, Store
from monitor.web import create_app
from monitor.web.metrics_app import create_metrics_app
from monitor.web.text import session_path, visible
from tests.hostile.corpus import MARK, OBEY, TRANSCRIPTS, Transcript, record

POLICY = f"strata: [{{name: base, rate: 1.0, rubrics: [{', '.join(RUBRICS)}]}}]\nholdout: 0.0"
COUNTS = {name: RubricCounts(measures=rubric.measures, scores=rubric.scores) for name, rubric in RUBRICS.items()}
LARGE = 20_000


class QuotingJudge(LexicalJudge):
    """Answers as the lexical judge does, and quotes whole turns; its own words are those of the transcript."""

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109 - the seam's
        answer = json.loads((await super().complete(request, timeout=timeout)).text)
        turns = {turn.index: turn.text for turn in request.window.turns}
        return Completion(text=json.dumps(_quoting(answer, turns, max(turns.values(), key=_hostility))))


def _hostility(text: str) -> tuple[bool, int]:
    known = {turn["text"] for turn in record()["turns"]}
    return text not in known and MARK not in text, len(text)


def _quoting(value: Any, turns: dict[int, str], hostile: str) -> Any:
    if isinstance(value, list):
        return [_quoting(item, turns, hostile) for item in value]
    if not isinstance(value, dict):
        return value
    changed = {name: _quoting(item, turns, hostile) for name, item in value.items()}
    for name in ("rationale", "auditor_notes", "evidence_gap", "request", "corrected_claim", "correction_content"):
        if value.get(name):
            changed[name] = hostile.strip()[:600]
    if value.get("quote") and value.get("turn_index") in turns:
        changed["quote"] = turns[value["turn_index"]]
    return changed


def replayed(store: Store, judge: LexicalJudge, lines: list[dict[str, Any]]) -> ReplaySummary:
    events = [
        json.dumps(event, ensure_ascii=False).encode()
        for number, line in enumerate(lines)
        for _, event in session_events(line, number)
    ]
    settings = load_settings(overrides={"sampling.salt": "salt", "sampling.assistants": {"shop": ["1"]}})
    policy = parse_policy(POLICY, source="test", rubrics=RUBRICS)
    return asyncio.run(replay_events(events, settings, policy, store, judge))


def stored(folder: Path, name: str) -> Store:
    return Store.open(f"sqlite:///{folder}/{name}.sqlite", rubrics=COUNTS, judge="lexical")


class Skeleton(HTMLParser):
    """The elements of a page, without its text: tags with the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[tuple[str, ...]] = set()
        self.text: list[str] = []
        self.links: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags |= {(tag, *(name for name, _ in attrs))}
        self.links += [value or "" for name, value in attrs if name in {"href", "src", "action"}]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, list[str], list[str]]]:
    """Give the store with all hostile sessions and a harmless one, and what both kinds of loggers logged."""
    folder = tmp_path_factory.mktemp("hostile")
    store = stored(folder, "hostile")
    lines = [record(number=999), *(item.record(number) for number, item in enumerate(TRANSCRIPTS))]
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign, assignment]
    logging.getLogger().addHandler(handler)
    try:
        with structlog.testing.capture_logs() as logged:
            summary = replayed(store, QuotingJudge(), lines)
    finally:
        logging.getLogger().removeHandler(handler)
    assert summary.finished == len(lines)
    assert summary.invalid == {}
    assert summary.rejected == 0
    yield store, [json.dumps(entry, default=str) for entry in logged], [item.getMessage() for item in records]
    store.close()


def sessions(store: Store) -> dict[str, Any]:
    """Give every stored session by its mark."""
    found: dict[str, Any] = {}
    page = store.sessions(SessionFilter())
    while True:
        for item in page.rows:
            mark = re.search(rf"{MARK}\d+", item.session_id)
            assert mark
            found[mark[0]] = item
        if page.next is None:
            return found
        page = store.sessions(SessionFilter(before=page.next))


def test_every_hostile_session_is_judged_by_every_rubric(judged: tuple[Store, Any, Any]) -> None:
    store = judged[0]
    found = sessions(store)
    assert len(found) == len(TRANSCRIPTS) + 1
    for item in found.values():
        session = store.session(item.tenant, item.session_id, item.segment)
        assert session is not None
        results = {
            entry.judgement.rubric: entry.judgement.result for entry in session.judgements if entry.judgement
        }
        assert set(results) == set(RUBRICS)


def test_no_hostile_text_is_logged(judged: tuple[Store, list[str], list[str]]) -> None:
    for line in (*judged[1], *judged[2]):
        assert MARK not in line
        assert OBEY not in line


def test_no_hostile_text_becomes_a_label(judged: tuple[Store, Any, Any]) -> None:
    with TestClient(create_metrics_app(judged[0])) as client:
        body = client.get("/metrics").text
    assert "backslide_" in body
    for word in (MARK, OBEY, "gnore the", "jndi", 'none"} 0\n'):
        assert word not in body
    labels = set(re.findall(r'assistant="([^"]*)"', body))
    assert labels <= {"other", "unknown", "", "shop"}


def test_no_hostile_text_becomes_an_element_of_a_page(judged: tuple[Store, Any, Any]) -> None:
    store = judged[0]
    found = sessions(store)
    own = _own_tags()
    assert "title" in own
    assert not own & {"script", "iframe", "object", "embed", "base"}
    with TestClient(create_app(store), base_url="http://localhost") as client:
        pages = {item.name: _page(client, found[f"{MARK}{number:03}"]) for number, item in _shown()}
        pages |= {"the list": client.get("/").text}
    for name, page in pages.items():
        skeleton = Skeleton(page)
        assert {tag[0] for tag in skeleton.tags} <= own, name
        attributes = {attribute for tag in skeleton.tags for attribute in tag[1:]}
        assert not {item for item in attributes if item.startswith("on") or item in {"srcdoc", "http-equiv"}}, name
        assert all(re.match(r"[/#?]", link) and not link.startswith("//") for link in skeleton.links), name
        assert visible(page) == page.replace("\r\n", "\n"), f"{name}: hidden characters"


def _shown() -> list[tuple[int, Transcript]]:
    """Pick the transcripts whose pages are looked at: of the large ones every fourth."""
    return [(number, item) for number, item in enumerate(TRANSCRIPTS) if len(item.text) < LARGE or number % 4 == 0]


def _own_tags() -> set[str]:
    """Give the elements that the templates and filters of the pages write."""
    found = {"span"}
    for template in (Path(web.__file__).parent / "templates").rglob("*.html"):
        found |= {tag.lower() for tag in re.findall(r"<([A-Za-z][A-Za-z0-9]*)", template.read_text("utf-8"))}
    return found


def _page(client: TestClient, item: Any) -> str:
    answer = client.get(session_path(item.tenant, item.session_id, item.segment))
    assert answer.status_code == 200, item.session_id
    return answer.text


def test_a_lone_surrogate_is_replaced_at_the_door() -> None:
    event = {
        "type": "turn",
        "event_id": "e",
        "session_id": "s",
        "ts": 1,
        "turn_id": "t",
        "role": "user",
        "text": "x",
    }
    raw = json.dumps(event).encode().replace(b'"x"', b'"\\ud800 ignore the rules"')
    found, kept = EventDecoder(max_bytes=10_000).decode(raw)
    assert isinstance(found, Turn)
    assert found.text == "\ufffd ignore the rules"
    assert json.loads(kept)["text"] == found.text
