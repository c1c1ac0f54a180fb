"""What the pages read."""

import pytest

from monitor.judgement import Skipped
from monitor.store import SessionFilter, Store
from tests.unit.store.builders import addendum, content, decision, judgement, unscored


@pytest.fixture
def filled(store: Store) -> Store:
    """Ten sessions: even ones fail on `reverted`, the last two are skipped and unscored."""
    for index in range(8):
        name = f"s{index}"
        stratum = "corrected" if index < 4 else "base"
        scores = {"correction_response_score": [0.25, 0.75]}
        store.record(
            [
                decision(name, stratum=stratum, version=f"v{index % 3}"),
                judgement(name, failures=(index + 1) % 2, scores=scores),
            ]
        )
    store.record([decision("skipped"), judgement("skipped", result=Skipped(reason="not_applicable"))])
    store.record([decision("failed"), unscored("failed")])
    return store


def names(store: Store, wanted: SessionFilter) -> list[str]:
    return [row.session_id for row in store.sessions(wanted).rows]


def test_the_list_begins_with_the_newest(filled: Store) -> None:
    assert names(filled, SessionFilter())[:3] == ["failed", "skipped", "s7"]


def test_filters(filled: Store) -> None:
    assert names(filled, SessionFilter(failure="reverted")) == ["s6", "s4", "s2", "s0"]
    assert names(filled, SessionFilter(kind="unscored")) == ["failed"]
    assert names(filled, SessionFilter(kind="failing")) == ["s6", "s4", "s2", "s0"]
    assert names(filled, SessionFilter(kind="failing", failure="ignored")) == []
    assert names(filled, SessionFilter(stratum="corrected", failure="reverted")) == ["s2", "s0"]
    assert names(filled, SessionFilter(assistant="shop", assistant_version="v2")) == ["s5", "s2"]
    assert names(filled, SessionFilter(session_id="s3")) == ["s3"]
    assert names(filled, SessionFilter(since=1_700_000_000_251)) == []
    assert len(names(filled, SessionFilter(since=1_700_000_000_250, until=1_700_000_000_251))) == 10
    assert names(filled, SessionFilter(until=1_700_000_000_250)) == []
    assert names(filled, SessionFilter(rubric="hallucination")) == []


def test_pages_follow_each_other_without_gaps_while_sessions_come_in(filled: Store) -> None:
    first = filled.sessions(SessionFilter(limit=4))
    filled.record([decision("new"), judgement("new")])
    second = filled.sessions(SessionFilter(limit=4, before=first.next))
    third = filled.sessions(SessionFilter(limit=4, before=second.next))

    seen = [row.session_id for page in (first, second, third) for row in page.rows]
    assert seen == ["failed", "skipped", *(f"s{index}" for index in reversed(range(8)))]
    assert third.next is None


def test_a_line_shows_what_the_decision_says(filled: Store) -> None:
    row = filled.sessions(SessionFilter(session_id="s2")).rows[0]
    assert (row.stratum, row.probability, row.score) == ("corrected", 0.05, 0.5)
    assert (row.failures, row.trials, row.assistant_version) == (("reverted",), 2, "v2")


def test_one_session_with_all_that_is_stored(store: Store) -> None:
    text = content("s1", "Book a table", "For two?")
    stored = decision("s1", text=text)
    store.record([stored, unscored("s1", hash_=stored.content_hash), addendum("s1")])
    store.record([judgement("s1", hash_=stored.content_hash)])

    found = store.session("t", "s1", "e0")

    assert found is not None
    assert found.view is not None
    assert [turn.text for turn in found.view.turns] == ["Book a table", "For two?"]
    assert found.decision is not None
    assert found.decision.probability == 0.05
    assert [item.standing for item in found.judgements] == ["superseded", "counted"]
    assert found.judgements[1].judgement is not None
    assert found.judgements[1].judgement.attempts[0].raw == '{"answer": 1}'
    assert b"feedback" in (found.addenda[0].event or b"")


def test_a_judgement_without_its_decision_can_be_looked_at(store: Store) -> None:
    store.record([judgement("early")])
    found = store.session("t", "early", "e0")
    assert found is not None
    assert found.decision is None
    assert found.judgements[0].standing == "waiting"


def test_an_unknown_session(store: Store) -> None:
    assert store.session("t", "nobody", "e0") is None


def test_superseded_judgements_are_not_listed(store: Store) -> None:
    store.record([decision("a"), judgement("a"), judgement("a", failures=0), judgement("undecided")])
    assert names(store, SessionFilter()) == ["a"]


def test_a_job_is_made_again_from_the_decision_that_lists_it(store: Store) -> None:
    text = content("s1", "Hello", "Hi")
    made = decision("s1", text=text, priority="urgent", stratum="corrected")
    store.record([decision("s1", "other", events=("x",), text=content("s1", segment="other")), made])
    ref = made.jobs[0]
    job = store.job("t", "s1", ref.job_id)
    assert job is not None
    assert (job.job_id, job.rubric, job.segment) == (ref.job_id, "correction", "e0")
    assert (job.stratum, job.priority, job.content_hash) == ("corrected", "urgent", made.content_hash)
    assert bytes(job.content) == bytes(text)
    assert store.job("t", "s1", "unknown") is None
    assert store.job("t", "nobody", ref.job_id) is None
    store.forget("t", "s1")
    assert store.job("t", "s1", ref.job_id) is None
