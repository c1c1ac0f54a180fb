"""The pages: what they show, that hostile text stays text, and what they say when something is missing."""

import re
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from monitor.judgement import Attempt, Screening, Skipped, Verdict
from monitor.store import Store
from monitor.web import create_app
from monitor.web.text import session_path
from tests.unit.store.builders import addendum, content, decision, judgement, policy, unscored

TEXTS = ("Two seats", "Two seats at 19:00", "No, at 20:00", "Right, 20:00", "Thanks", "Confirmed for 19:00")
EVENT: dict[str, Any] = {
    "correction_id": "C1",
    "correction_turn_index": 2,
    "error_turn_index": 1,
    "first_right_use_turn_index": 3,
    "reversion_turn_index": 5,
    "over_correction_turn_index": None,
    "corrected_claim": "19:00",
    "correction_content": "20:00",
    "correction_type": "factual_correction",
    "scores": {"acknowledgment": 5, "persistence": 2},
    "acknowledgment_quote": "Right, 20:00",
    "incorporation_evidence": [{"turn_index": 5, "quote": "for 19:00"}],
    "over_correction_detail": None,
    "failure_mode": "reverted",
    "rationale": "It came back.",
    "correction_response_score": 0.625,
    "persistence_unobserved": False,
}
EVIL = '"><script>alert(1)</script>\u202e{{ 7*7 }}\0'


def add(store: Store, name: str, *texts: str, segment: str = "e0", tenant: str = "t") -> None:
    text = content(name, *(texts or TEXTS), tenant=tenant, segment=segment)
    first = decision(name, segment, text=text, tenant=tenant)
    verdict = Verdict(data={"events": [EVENT]})
    store.record([first, judgement(name, segment, verdict, hash_=first.content_hash, tenant=tenant)])


def test_the_list(client: TestClient, store: Store) -> None:
    store.record([policy()])
    add(store, "chat-1")
    store.record([decision("chat-2"), judgement("chat-2", result=Skipped(reason="no_response"))])
    store.record([decision("chat-3"), unscored("chat-3"), decision("chat-4")])

    page = client.get("/").text

    assert page.index("chat-3") < page.index("chat-2") < page.index("chat-1")
    for shown in ("reverted", "skipped: no response", "unscored: timeout", "1 job waits", "5\u202f%", "v1"):
        assert shown in page


def test_the_list_filters_and_keeps_the_choice(client: TestClient, store: Store) -> None:
    add(store, "chat-1")
    store.record([decision("chat-2"), unscored("chat-2")])

    page = client.get("/", params={"kind": "unscored", "session_id": "", "stratum": ""}).text

    assert "chat-2" in page
    assert "chat-1" not in page
    assert '<option value="unscored" selected>' in page


def test_the_list_has_pages(client: TestClient, store: Store) -> None:
    names = [f"chat-{index:03}" for index in range(60)]
    store.record([record for name in names for record in (decision(name), judgement(name))])

    first = client.get("/?kind=verdict").text
    older = re.search(r'href="(/\?[^"]*before=\d+)"', first)
    assert older is not None
    assert "kind=verdict" in older[1]
    second = client.get(older[1].replace("&amp;", "&")).text

    listed = re.findall(r"chat-\d\d\d(?=</a>)", first + second)
    assert listed == names[::-1]
    assert "Older" not in second
    assert "Newest" in second


@pytest.mark.parametrize("before", ["x", "-1", "9" * 30, "\u0663"])
def test_a_damaged_page_number(client: TestClient, before: str) -> None:
    answer = client.get("/", params={"before": before})
    assert answer.status_code == 400
    assert "newest sessions" in answer.text


def test_the_list_filters_by_day(client: TestClient, store: Store) -> None:
    day = 86_400_000
    for index in range(3):
        name = f"chat-{index}"
        store.record([decision(name), judgement(name, started_at=1_769_904_000_000 - 250 + index * day)])

    page = client.get("/", params={"since": "2026-02-02", "until": "2026-02-02"}).text

    assert re.findall(r"chat-\d(?=</a>)", page) == ["chat-1"]
    assert 'value="2026-02-02"' in page


@pytest.mark.parametrize("day", ["yesterday", "2026-02-30", "9999-12-31"])
def test_a_day_that_is_none(client: TestClient, day: str) -> None:
    answer = client.get("/", params={"until": day})
    assert answer.status_code == 400
    assert "2026-01-31" in answer.text


def test_empty_states_say_what_to_wait_for(client: TestClient) -> None:
    page = client.get("/").text
    assert "No session has been judged yet" in page
    assert "No finished session has been counted yet" in page
    assert "No judged session matches" in client.get("/?session_id=nobody").text


def test_a_session_with_its_verdict(client: TestClient, store: Store) -> None:
    add(store, "chat-1")
    store.record([addendum("chat-1")])
    page = client.get(session_path("t", "chat-1", "e0")).text

    assert 'id="turn-5" tabindex="-1" class="turn assistant bad"' in page
    assert re.search(r'<mark class="bad" title="C1: reversion"><span [^>]*></span>for 19:00</mark>', page)
    assert 'href="#j0-0"><span aria-hidden="true">✗</span>C1<span class="sr"> reversion</span></a>' in page
    assert "It came back." in page
    assert 'value="2">2 of 5</meter>' in page
    assert "{&#34;answer&#34;: 1}" in page
    assert "feedback" in page
    for known in ("v1", "abc", "lexical-1", "base", "5\u202f%"):
        assert known in page


def test_attempts_show_what_was_wrong_with_them(client: TestClient, store: Store) -> None:
    attempts = [
        Attempt(window="C1", number=1, kind="invalid", raw="<b>no</b>", error="failure_mode is unknown."),
        Attempt(window="C1", number=2, kind="failed", raw="", error="no answer", error_type="timeout"),
    ]
    store.record([decision("chat-1"), unscored("chat-1", attempts=attempts)])
    page = client.get(session_path("t", "chat-1", "e0")).text
    assert "failure_mode is unknown." in page
    assert "&lt;b&gt;no&lt;/b&gt;" in page
    assert "(timeout)" in page


@pytest.mark.parametrize(
    ("tenant", "session_id", "segment"),
    [("t", "a/b", "e/0"), ("t", "..", "e0"), ("..", ".", "%2F"), ("t", "a?b#c&d", "ü 漢"), ("t", EVIL, "e0")],
)
def test_any_id_has_a_page_that_the_list_links_to(
    client: TestClient, store: Store, tenant: str, session_id: str, segment: str
) -> None:
    add(store, session_id, tenant=tenant, segment=segment)
    link = re.search(r'class="id" href="([^"]+)"', client.get("/").text)
    assert link is not None
    answer = client.get(link[1].replace("&amp;", "&"))
    assert answer.status_code == 200
    assert "It came back." in answer.text


def test_hostile_text_stays_text(client: TestClient, store: Store) -> None:
    hostile = {**EVENT, **{name: EVIL for name, value in EVENT.items() if isinstance(value, str)}}
    text = content(EVIL, EVIL, EVIL)
    first = decision(
        EVIL, EVIL, text=text, stratum=EVIL, version=EVIL, signals={EVIL: EVIL}, policy=EVIL, error=EVIL
    )
    verdict = Verdict(data={"events": [hostile], "session": {"overall_assessment": EVIL}, EVIL: EVIL}, note=EVIL)
    attempts = [Attempt(window=EVIL, number=1, kind="invalid", raw=EVIL, error=EVIL, error_type=EVIL)]
    store.record(
        [
            first,
            judgement(EVIL, EVIL, verdict, hash_=first.content_hash, attempts=attempts, judge=EVIL, model=EVIL),
        ]
    )
    for address in ("/", session_path("t", EVIL, EVIL).replace("%00", "%E2%90%80")):
        answer = client.get(address)
        assert answer.status_code == 200
        assert "<script" not in answer.text
        assert "\u202e" not in answer.text
        assert "\0" not in answer.text
        assert "{{ 7*7 }}" in answer.text


def test_query_values_are_escaped(client: TestClient) -> None:
    page = client.get("/", params={"session_id": EVIL, "kind": EVIL, "measure": EVIL, "stratum": EVIL}).text
    assert "<script" not in page


def test_every_answer_forbids_scripts_and_frames(client: TestClient) -> None:
    for path in ("/", "/nothing", "/static/style.css", "/sessions/a/b/c"):
        policy_header = client.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy_header
        assert "script-src" not in policy_header
        assert "frame-ancestors 'none'" in policy_header
    assert client.get("/").headers["cache-control"] == "no-store"
    assert client.get("/static/style.css").headers.get("cache-control") != "no-store"


def test_pages_hold_nothing_that_their_policy_would_block(client: TestClient, store: Store) -> None:
    add(store, "chat-1")
    for path in ("/", session_path("t", "chat-1", "e0"), "/nothing"):
        page = client.get(path).text
        assert not re.search(r"<script|<style|\sstyle=|\son\w+=|https?://", page)


def test_other_hosts_are_refused(client: TestClient) -> None:
    """A page elsewhere that resolves its own name to this machine gets nothing."""
    assert client.get("/", headers={"host": "attacker.example"}).status_code == 400
    assert client.get("/", headers={"host": "127.0.0.1:8080"}).status_code == 200


def test_unknown_addresses_say_what_to_do(client: TestClient) -> None:
    for path in ("/sessions/t/nobody/e0", "/sessions/t", "/session", "/nothing"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert "Back to the judged sessions" in answer.text
    assert client.post("/").status_code == 405


def test_a_session_without_text_says_why(client: TestClient, store: Store) -> None:
    add(store, "chat-1")
    store.record([decision("unselected", selected=False), judgement("early")])
    store.forget("t", "chat-1")

    assert "Retention has removed the text" in client.get(session_path("t", "chat-1", "e0")).text
    assert "Text is stored only of sessions" in client.get(session_path("t", "unselected", "e0")).text
    assert "The decision of this session has not arrived yet" in client.get(session_path("t", "early", "e0")).text


def test_a_store_that_is_down_gives_a_page_that_says_so(store: Store) -> None:
    with store._engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE totals")
    with TestClient(create_app(store), base_url="http://localhost", raise_server_exceptions=False) as client:
        answer = client.get("/")
    assert answer.status_code == 503
    assert "records wait in Kafka" in answer.text


def test_no_rates_while_the_totals_are_rebuilt(client: TestClient, store: Store) -> None:
    add(store, "chat-1")
    with store._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE meta SET value = 1 WHERE name = 'rebuilding'")
    assert "The totals are being rebuilt" in client.get("/").text


def test_a_warning_stands_on_every_page(store: Store) -> None:
    with TestClient(create_app(store, warning="Sends text <unredacted>."), base_url="http://localhost") as client:
        for path in ("/", "/nothing"):
            assert "Sends text &lt;unredacted&gt;." in client.get(path).text


def test_every_control_has_a_label_and_every_table_headers(client: TestClient, store: Store) -> None:
    store.record([policy()])
    add(store, "chat-1")
    page = client.get("/").text
    controls = re.findall(r'<(?:input|select) id="([^"]+)"', page)
    assert controls
    assert controls == re.findall(r'<label for="([^"]+)"', page)
    assert page.count("<table") == page.count("<thead>") == 2
    assert page.count('<th scope="col"') == page.count("<th scope=") - page.count('<th scope="row"')


def test_what_the_screen_said_stands_before_the_judges_attempts(client: TestClient, store: Store) -> None:
    screen = Screening(
        judge="cheap",
        provider="anthropic",
        model="cheap",
        prompt_version="v1",
        prompt_hash="h",
        verdict="clear",
        one_in=20,
        attempts=[Attempt(window="screen", number=1, kind="valid", raw="the answer of the screen")],
    )
    out = judgement("chat-1", result=Skipped(reason="screened_out"), screen=screen)
    audited = judgement("chat-2", screen=msgspec.structs.replace(screen, audited=True))
    looked = msgspec.structs.replace(screen, verdict="look", one_in=1, quote=EVIL)
    store.record([decision(f"chat-{number}") for number in (1, 2, 3)])
    store.record([out, audited, judgement("chat-3", screen=looked)])
    pages = [client.get(session_path("t", f"chat-{number}", "e0")).text for number in (1, 2, 3)]
    for page, said in zip(pages, ("not judged", "judged in full as one in 20", "to be looked at"), strict=True):
        assert said in page
        assert "the answer of the screen" in page
    assert "skipped: screened out" in pages[0]
    assert "<script>alert" not in pages[2]
