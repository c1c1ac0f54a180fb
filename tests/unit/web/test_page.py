"""What the page of a session says of its judgements: in which order, how sure, and what has none yet."""

from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from monitor.decision import repeat_id
from monitor.judgement import Attempt, Judgement, Skipped, Tally, Unscored, Verdict
from monitor.rubrics import RUBRICS
from monitor.store import Store, StoredSession
from monitor.web.page import session_page
from monitor.web.text import session_path
from tests.unit.store.builders import content, decision, judgement
from tests.unit.web.judged import decided, golden, judged, spreading
from tests.unit.web.test_app import EVENT, TEXTS


def stored(store: Store, name: str) -> StoredSession:
    found = store.session("t", name, "e0")
    assert found is not None
    return found


def reverted(name: str = "chat", **other: Any) -> Judgement:
    return judgement(name, result=Verdict(data={"events": [EVENT]}), **other)


def add(store: Store, *answers: Judgement) -> StoredSession:
    text = content("chat", *TEXTS)
    chosen = decision("chat", text=text)
    given = [msgspec.structs.replace(answer, content_hash=chosen.content_hash) for answer in answers]
    store.record([chosen, *given])
    return stored(store, "chat")


def test_what_failed_comes_first_and_what_does_not_count_last(store: Store) -> None:
    chosen = decided("mixed", dict(golden())["golden-refusal-refund-once"])
    extra = judgement("mixed", rubric="refusal", started_at=9, job_id="other")
    store.record([chosen, *judged(chosen), extra])
    page = session_page(stored(store, "mixed"))
    assert [bool(view.standing) for view in page.judgements] == [False] * len(RUBRICS) + [True]
    assert page.judgements[0].stored.rubric == "refusal"
    assert page.judgements[0].report.tone == "bad"
    assert page.rubrics == ("refusal",)


def test_only_judgements_that_count_mark_the_transcript(store: Store) -> None:
    page = session_page(add(store, reverted(), reverted(started_at=5)))
    assert [view.marks for view in page.judgements] == [True, False]
    first, second = page.judgements
    assert all(item.mark for item in first.quotes["j0-0"])
    assert [item.mark for item in second.quotes["j1-0"]] == [None, None]


def test_the_marks_of_one_rubric_can_be_chosen(store: Store) -> None:
    found = add(store, reverted())
    assert session_page(found, "correction").marked == "correction"
    assert session_page(found, "nothing").marked is None
    assert session_page(found, "correction").judgements[0].marks


def test_how_often_the_checks_refused_an_answer_is_said(store: Store) -> None:
    attempts = [
        Attempt(window="C1", number=1, kind="invalid", raw="{}", error="wrong"),
        Attempt(window="C1", number=2, kind="valid", raw="{}"),
        Attempt(window="C2", number=1, kind="valid", raw="{}"),
    ]
    (view,) = session_page(add(store, reverted(attempts=attempts))).judgements
    assert "the checks refused the judge's first answer to 1 of 2 questions" in view.sure
    assert "each quote was found in the transcript" in view.sure


@pytest.mark.parametrize(
    ("failures", "said"), [(1, "the same outcomes in 1 of 1"), (0, "the same outcomes in 0 of 1")]
)
def test_whether_the_judge_agrees_with_itself_is_said(store: Store, failures: int, said: str) -> None:
    again = reverted(job_id=repeat_id(reverted().job_id), run="repeat", failures=failures, started_at=5)
    page = session_page(add(store, reverted(), again))
    assert any(said in item for item in page.judgements[0].sure)
    assert page.judgements[1].standing.startswith("asked again")


def test_a_quote_that_is_not_in_the_text_is_said_to_be_missing(client: TestClient, store: Store) -> None:
    event = {**EVENT, "acknowledgment_quote": "Ninety seats"}
    add(store, judgement("chat", result=Verdict(data={"events": [event]})))
    page = client.get(session_path("t", "chat", "e0")).text
    assert "1 quote of 2 not found in the stored text" in page
    assert "! not found in the stored text" in page


def test_a_job_without_a_result_is_pending_since_its_decision(client: TestClient, store: Store) -> None:
    store.record([decided("waiting", [{"role": "user", "text": "Hi"}], ["correction", "refusal"])])
    found = stored(store, "waiting")
    assert [job.rubric for job in found.pending] == ["correction", "refusal"]
    page = client.get(session_path("t", "waiting", "e0")).text
    assert page.count("Waits for its judge since") == 2
    assert page.count("pending") == 2


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (Unscored(reason="timeout", note="C2"), "The judge gave no answer within the deadline: C2."),
        (Skipped(reason="no_response"), "There is no reply to judge."),
    ],
)
def test_no_verdict_is_said_in_words(
    client: TestClient, store: Store, result: Unscored | Skipped, said: str
) -> None:
    add(store, judgement("chat", result=result))
    page = client.get(session_path("t", "chat", "e0")).text
    assert page.count(said) == 2


def test_claims_stand_beside_their_turns_and_the_graph_has_words_for_all_it_shows(
    client: TestClient, store: Store
) -> None:
    store.record(list(spreading()))
    page = client.get(session_path("t", "spread", "e0")).text
    assert page.count('class="claim ') == 40
    assert page.count('<g class="node bad">') == 20
    assert page.count("<title>") == 1 + 20 + 18
    assert page.count("Propagation graph</title>") == 1
    turn = page[page.index('id="turn-3"') : page.index('id="turn-4"')]
    assert turn.count('class="claim ') == 4
    assert "came back unsupported" in turn
    assert "anthropic:claude-haiku-5-5" in page


def test_claims_stand_with_their_verdict_once_the_text_is_gone(client: TestClient, store: Store) -> None:
    chosen, answer = spreading()
    # Retention of texts has other times than that of verdicts: a decision may come without its content.
    store.record([msgspec.structs.replace(chosen, content=None), answer])
    page = client.get(session_path("t", "spread", "e0")).text
    assert page.count('class="claim ') == 40
    assert "Retention has removed the text of this session" in page


def test_review_by_a_person_is_said(client: TestClient, store: Store) -> None:
    review = {"flagged": True, "reasons": ["high_risk_regression"], "awaiting_review": True}
    add(store, judgement("chat", result=Verdict(data={"events": [EVENT], "review": review})))
    page = client.get(session_path("t", "chat", "e0")).text
    assert "awaits review by a person" in page
    assert "high risk regression" in page


def test_totals_and_page_name_the_same_failures(store: Store) -> None:
    answer = reverted()
    (view,) = session_page(add(store, answer)).judgements
    assert view.failures == ("reverted",)
    assert view.trials == 2
    assert Tally(trials=2, failures=1) == answer.outcomes.measures["reverted"]
