"""Replay: files through the whole pipeline, without a broker."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from monitor.config import Settings
from monitor.config import load as load_settings
from monitor.decision import Decision
from monitor.errors import InputError, JudgeFatal, PolicyError
from monitor.judgement import Judgement
from monitor.judging.lexical import LexicalJudge
from monitor.judging.model import Completion, JudgeRequest
from monitor.replay import replay_events, run_replay
from monitor.replay_summary import ReplaySummary
from monitor.rubrics import RUBRICS
from monitor.sampling.policy import Policy, parse_policy
from monitor.session import Addendum, session_view
from monitor.store import Record, RubricCounts, SessionFilter, Store
from monitor.traffic import TrafficGenerator, TrafficPlan, counts
from tests.unit.sampling.policies import built_in

BASE = 1_790_000_000.0
VERSIONS = ["2026.10", "2026.11"]
ALL = "strata: [{name: base, rate: 1.0, rubrics: [correction]}]\nholdout: 0.0"


def _settings(**other: Any) -> Settings:
    assistants = {"concierge": VERSIONS, "helpdesk": VERSIONS}
    return load_settings(overrides={"sampling.assistants": assistants, "sampling.salt": "salt", **other})


def _write(path: Path, lines: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def _turn(number: int, session: str = "s", **other: Any) -> dict[str, Any]:
    return {
        "type": "turn",
        "event_id": f"{session}-e{number}",
        "session_id": session,
        "ts": BASE + number,
        "turn_id": f"{session}-t{number}",
        "turn_index": number,
        "role": ("user", "assistant")[number % 2],
        "text": f"This is turn {number}.",
        **other,
    }


def _event(kind: str, event_id: str, ts: float, **other: Any) -> dict[str, Any]:
    return {"type": kind, "event_id": event_id, "session_id": "s", "ts": ts, **other}


async def _replay(
    folder: Path, lines: Iterable[dict[str, Any]], **options: Any
) -> tuple[ReplaySummary, list[Record]]:
    """Replay a file with every session selected; give the summary and what went to the store."""
    policy = folder / "policy.yaml"
    policy.write_text(ALL, encoding="utf-8")
    seen: list[Record] = []
    path = _write(folder / "input.jsonl", lines)
    summary = await run_replay(path, _settings(**{"sampling.policy": str(policy)}), observe=seen.append, **options)
    return summary, seen


def _decisions(records: Iterable[Record]) -> list[Decision]:
    return [record for record in records if isinstance(record, Decision)]


def _texts(decision: Decision) -> list[str]:
    assert decision.content is not None
    return [turn.text for turn in session_view(decision.content).turns]


class Place:
    """A store in a folder, and a replay of traffic into it."""

    def __init__(self, folder: Path, model: LexicalJudge | None = None, **settings: Any) -> None:
        rubrics = {
            name: RubricCounts(measures=rubric.measures, scores=rubric.scores) for name, rubric in RUBRICS.items()
        }
        self.store = Store.open(f"sqlite:///{folder}/store.sqlite", rubrics=rubrics)
        self.model = model or LexicalJudge()
        self.settings = _settings(**settings)
        self.records: list[Record] = []

    async def replay(
        self, traffic: TrafficGenerator, *, policy: Policy | None = None, census: bool = False
    ) -> ReplaySummary:
        return await replay_events(
            (msgspec.json.encode(delivery.event) for delivery in traffic.deliveries(BASE)),
            self.settings,
            policy or built_in("correction"),
            self.store,
            self.model,
            salt=b"salt",
            census=census,
            observe=self.records.append,
        )


# -- bad rows ----------------------------------------------------------------------------------------------------


async def test_turns_without_an_index_are_ordered_by_time(tmp_path: Path) -> None:
    lines = [{key: value for key, value in _turn(n).items() if key != "turn_index"} for n in (2, 0, 3, 1)]
    summary, records = await _replay(tmp_path, lines)
    assert summary.finished == 1
    assert _texts(_decisions(records)[0]) == [f"This is turn {n}." for n in range(4)]


async def test_sessions_without_an_index_or_time_keep_the_order_of_the_file(tmp_path: Path) -> None:
    turns = [{"role": "user", "text": "a"}, {"role": "assistant", "text": "b"}, {"role": "user", "text": "c"}]
    summary, records = await _replay(tmp_path, [{"session_id": "s", "turns": turns}])
    assert (summary.finished, summary.closed) == (1, {"inactivity": 1})
    assert _texts(_decisions(records)[0]) == ["a", "b", "c"]


async def test_duplicate_ids_count_once(tmp_path: Path) -> None:
    session = {"session_id": "x", "turns": [{"role": "user", "text": "a", "turn_id": "t"}] * 2}
    lines = [_turn(0), _turn(1), _turn(1, text="another text under the same id"), session]
    summary, records = await _replay(tmp_path, lines)
    assert (summary.events, summary.finished, summary.duplicates) == (5, 2, 2)
    assert sorted(map(_texts, _decisions(records))) == [["This is turn 0.", "This is turn 1."], ["a"]]


async def test_events_without_a_turn_are_orphans(tmp_path: Path) -> None:
    lines = [
        _event("evidence", "v", BASE, turn_id="nowhere"),
        _event("feedback", "f", BASE + 1, rating="up"),
        _event("escalation", "x", BASE + 2),
    ]
    summary, records = await _replay(tmp_path, lines)
    assert summary.finished == 0
    assert summary.orphans == {"evidence": 1, "feedback": 1, "escalation": 1}
    assert records == []


async def test_events_after_the_close_are_addenda(tmp_path: Path) -> None:
    lines = [
        _turn(0),
        _turn(1),
        _event("session_end", "z", BASE + 2),
        _event("feedback", "f", BASE + 900, rating="up"),
    ]
    summary, records = await _replay(tmp_path, lines)
    assert (summary.finished, summary.closed, summary.late) == (1, {"ended": 1}, 1)
    kinds = [type(record) for record in records]
    assert kinds.index(Decision) < kinds.index(Judgement) < kinds.index(Addendum)


@pytest.mark.parametrize("text", ["a\x00b", "H\ud800i", "\x07\x1b[31m", "\u202e"])
async def test_odd_characters_go_all_the_way(tmp_path: Path, text: str) -> None:
    session = {"session_id": "x", "turns": [{"role": "user", "text": text}, {"role": "assistant", "text": text}]}
    summary, records = await _replay(tmp_path, [_turn(0, text=text), _turn(1, text=text), session])
    assert (summary.finished, summary.rejected, summary.strata[0].verdicts) == (2, 0, 2)
    for decision in _decisions(records):
        assert _texts(decision) == [text.replace("\ud800", "\ufffd")] * 2


async def test_a_session_without_end_is_cut_before_user_turns(tmp_path: Path) -> None:
    summary, records = await _replay(tmp_path, (_turn(n, ts=BASE + n / 100) for n in range(10_000)))
    assert summary.closed == {"max_turns": 19, "inactivity": 1}
    decisions = _decisions(records)
    assert [decision.turns for decision in decisions] == [500] * 20
    assert [decision.previous_segment for decision in decisions[1:]] == [one.segment for one in decisions[:-1]]
    for decision in decisions:
        assert decision.content is not None
        assert session_view(decision.content).turns[0].role == "user"


async def test_any_time_is_accepted(tmp_path: Path) -> None:
    lines = [_turn(n, name, ts=ts + n) for name, ts in (("far", 253_402_300_000), ("old", 0)) for n in (0, 1)]
    summary, records = await _replay(tmp_path, [*lines, _turn(0), _turn(1)])
    assert (summary.finished, summary.rejected) == (3, 0)
    assert [decision.session_id for decision in _decisions(records)] == ["old", "s", "far"]


# -- files -------------------------------------------------------------------------------------------------------


async def test_events_are_merged_by_time_first(tmp_path: Path) -> None:
    """A2: one session after the other in the file is as good as both at a time."""
    apart = [_turn(n, name, ts=BASE + 600 * n) for name in ("a", "b") for n in range(6)]
    mixed = sorted(apart, key=lambda event: event["ts"])
    one, two = await _replay(tmp_path, apart), await _replay(tmp_path, mixed)
    assert one[0].finished == 2
    assert one == two


async def test_a_bad_line_stops_or_is_counted(tmp_path: Path) -> None:
    lines = [_turn(0), {"type": "turn"}, _turn(1)]
    with pytest.raises(InputError, match=r"input\.jsonl: line 2: .*event_id"):
        await _replay(tmp_path, lines)
    summary, _ = await _replay(tmp_path, lines, skip_invalid=True)
    assert (summary.events, summary.invalid, summary.finished) == (2, {"invalid_field": 1}, 1)
    assert "1 invalid, left out (invalid_field 1)" in summary.to_text()


async def test_a_broken_policy_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"none\.yaml: can't be read"):
        await run_replay(tmp_path / "x.jsonl", _settings(**{"sampling.policy": str(tmp_path / "none.yaml")}))


async def test_a_mapping_and_a_store_of_ones_own(tmp_path: Path) -> None:
    mapping = tmp_path / "map.yaml"
    mapping.write_text("only: {k: [m]}\nfields: {session_id: s, ts: at, role: who, text: says}", encoding="utf-8")
    lines = [{"k": "m", "s": 1, "at": n, "who": who, "says": "x"} for n, who in enumerate(("user", "assistant"))]
    url = f"sqlite:///{tmp_path}/kept.sqlite"
    first, _ = await _replay(tmp_path, [*lines, {"k": "typing"}], mapping=mapping, store_url=url)
    assert (first.finished, first.passed_over, first.already_stored) == (1, 1, 0)
    again, _ = await _replay(tmp_path, [*lines, {"k": "typing"}], mapping=mapping, store_url=url)
    assert (again.finished, again.already_stored, again.rates) == (1, 2, [])
    store = Store.open(url)
    assert [row.session_id for row in store.sessions(SessionFilter()).rows] == ["1"]
    store.close()


async def test_an_empty_file_gives_an_empty_summary(tmp_path: Path) -> None:
    summary, records = await _replay(tmp_path, [])
    assert (summary.events, summary.finished, records) == (0, 0, [])
    assert "0 finished sessions" in summary.to_text()


async def test_recorded_sessions_are_all_finished_and_the_same_every_time(shared_data: Path) -> None:
    path = shared_data / "star_base_traffic.jsonl"
    sessions = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    runs: list[list[Record]] = [[], []]
    for run in runs:
        summary = await run_replay(path, _settings(), observe=run.append)
        assert summary.finished == len(sessions)
        assert (summary.duplicates, summary.late, summary.orphans, summary.rejected) == (0, 0, {}, 0)
    found = {decision.session_id: decision.turns for decision in _decisions(runs[0])}
    assert found == {session["session_id"]: len(session["turns"]) for session in sessions}
    assert any(isinstance(record, Judgement) for record in runs[0])
    assert msgspec.json.encode(runs[0]) == msgspec.json.encode(runs[1])


# -- traffic -----------------------------------------------------------------------------------------------------


async def test_the_summary_agrees_with_the_store_and_with_what_was_decided(tmp_path: Path) -> None:
    place = Place(tmp_path)
    summary = await place.replay(TrafficGenerator(3, TrafficPlan(sessions=300)))
    decisions = _decisions(place.records)
    judgements = [record for record in place.records if isinstance(record, Judgement)]
    assert summary.finished == len(decisions) == 300 == sum(stratum.finished for stratum in summary.strata)
    assert summary.duplicates > 0
    for stratum in summary.strata:
        mine = [decision for decision in decisions if decision.stratum == stratum.name]
        assert (stratum.finished, stratum.selected) == (len(mine), sum(one.selected for one in mine))
        assert stratum.selected == stratum.verdicts + sum(stratum.skipped.values()) + sum(
            stratum.unscored.values()
        )
    sums = place.store.totals().sums
    for name, count in (
        ("sessions_finished", 300),
        ("jobs_listed", len(judgements)),
        ("verdicts", len(judgements)),
    ):
        assert sum(value for key, value in sums.items() if key.name == name) == count
    assert sum(place.store.totals().pending.values()) == 0
    assert summary.calls == {"none": sum(len(judgement.attempts) for judgement in judgements)}
    for rate in summary.rates:
        tallies = [
            judgement.outcomes.measures[rate.measure]
            for decision, judgement in zip([d for d in decisions if d.selected], judgements, strict=True)
            if (decision.labels.assistant, decision.labels.assistant_version)
            == (rate.assistant, rate.assistant_version)
        ]
        assert rate.judged == len(tallies)
        assert rate.trials == sum(tally.trials for tally in tallies)
        assert rate.failures == sum(tally.failures for tally in tallies)
    assert {(rate.assistant, rate.assistant_version) for rate in summary.rates} == {
        (assistant, version) for assistant in ("concierge", "helpdesk") for version in VERSIONS
    }


async def test_with_everything_selected_rate_and_census_are_the_same(tmp_path: Path) -> None:
    place = Place(tmp_path)
    policy = parse_policy(ALL, source="test", rubrics=RUBRICS)
    summary = await place.replay(TrafficGenerator(4, TrafficPlan(sessions=150)), policy=policy, census=True)
    assert summary.census
    rates = {
        (r.assistant, r.assistant_version, r.measure): (r.judged, r.trials, r.failures) for r in summary.rates
    }
    assert rates == {
        (r.assistant, r.assistant_version, r.measure): (r.sessions, r.trials, r.failures) for r in summary.census
    }
    for rate in summary.rates:
        assert rate.interval.rate == pytest.approx(rate.raw)


async def test_a_census_judges_all_and_stores_only_what_was_selected(tmp_path: Path) -> None:
    folders = [tmp_path / "with", tmp_path / "without"]
    traffic = TrafficGenerator(5, TrafficPlan(sessions=200))
    places = [Place(folder) for folder in folders]
    census = await places[0].replay(traffic, census=True)
    plain = await places[1].replay(traffic)
    assert msgspec.json.encode(places[0].records) == msgspec.json.encode(places[1].records)
    assert places[0].store.totals().sums == places[1].store.totals().sums
    assert (census.rates, census.strata) == (plain.rates, plain.strata)
    assert plain.census is None
    by_measure = Counter[str]()
    for row in census.census or ():
        by_measure[row.measure] += row.sessions
    assert set(by_measure.values()) == {200}
    trials = sum(row.trials for row in census.census or () if row.measure == "reverted")
    judged = sum(rate.trials for rate in plain.rates if rate.measure == "reverted")
    assert judged < trials <= sum(counts(traffic.labels(), version)[1] for version in VERSIONS) * 1.5


async def test_a_census_is_shown_when_nothing_was_selected(tmp_path: Path) -> None:
    none = "strata:\n  - {name: base, rate: 0.001, rubrics: [correction]}\nholdout: 0\n"
    policy = parse_policy(none, source="test", rubrics=RUBRICS)
    traffic = TrafficGenerator(5, TrafficPlan(sessions=60))
    summary = await Place(tmp_path / "census").replay(traffic, policy=policy, census=True)
    assert not any(stratum.selected for stratum in summary.strata)
    text = summary.to_text()
    rows = [row for row in summary.census or () if row.measure == "reverted"]
    assert rows
    assert text.count("correction/reverted") == len(rows)
    assert text.endswith("no session was selected: raise the rates of the policy")
    for row in rows:
        names = [row.assistant, row.assistant_version, "correction/reverted"]
        (line,) = [each for each in text.splitlines() if each.split()[:3] == names]
        assert line.endswith(f"{100 * (row.rate or 0):.1f} %")
    plain = await Place(tmp_path / "plain").replay(traffic, policy=policy)
    assert "correction/reverted" not in plain.to_text()
    assert plain.to_text().endswith("add --census to judge all of them")


async def test_another_salt_picks_other_sessions(tmp_path: Path) -> None:
    path = _write(
        tmp_path / "x.jsonl", (d.event for d in TrafficGenerator(6, TrafficPlan(sessions=200)).deliveries(BASE))
    )
    picked = []
    for salt in ("one", "one", "two"):
        seen: list[Record] = []
        await run_replay(path, _settings(**{"sampling.salt": salt}), observe=seen.append)
        picked.append([decision.session_id for decision in _decisions(seen) if decision.selected])
    assert picked[0] == picked[1] != picked[2]


async def test_judgements_are_dated_by_the_stream(tmp_path: Path) -> None:
    _, records = await _replay(tmp_path, [_turn(0), _turn(1)])
    decision, judgement = records
    assert isinstance(decision, Decision)
    assert isinstance(judgement, Judgement)
    assert judgement.started_at == judgement.finished_at == decision.span.closed_at
    assert decision.span.closed_at == round((BASE + 1) * 1000) + 900_001  # inactivity: the gap, and a moment


class SlowJudge(LexicalJudge):
    """The lexical judge, answering out of order; it knows how many questions were open at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.open = self.most = self.asked = 0

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109
        import asyncio

        self.open += 1
        self.asked += 1
        self.most = max(self.most, self.open)
        for _ in range(self.asked * 7 % 11):
            await asyncio.sleep(0)
        self.open -= 1
        return await super().complete(request, timeout=timeout)


async def test_answers_out_of_order_change_nothing_and_stay_within_the_limit(tmp_path: Path) -> None:
    slow = SlowJudge()
    folders = [tmp_path / "slow", tmp_path / "quick"]
    places = [Place(folders[0], slow, **{"judge.concurrency": 4}), Place(folders[1])]
    for place in places:
        await place.replay(TrafficGenerator(7, TrafficPlan(sessions=150)), census=True)
    assert 2 <= slow.most <= 4
    assert msgspec.json.encode(places[0].records) == msgspec.json.encode(places[1].records)


class NoKey(LexicalJudge):
    """A provider that refuses the key."""

    async def complete(self, request: JudgeRequest, *, timeout: float) -> Completion:  # noqa: ASYNC109
        raise JudgeFatal("authentication", "the key is refused")


async def test_a_judge_that_can_not_be_asked_stops_the_replay_and_leaves_no_job_open(tmp_path: Path) -> None:
    place = Place(tmp_path, NoKey(), **{"store.batch": 1})
    with pytest.raises(JudgeFatal, match="the key is refused"):
        await place.replay(TrafficGenerator(8, TrafficPlan(sessions=100)))
    assert sum(place.store.totals().pending.values()) == 0


async def test_json_and_text_say_the_same(tmp_path: Path) -> None:
    summary = await Place(tmp_path).replay(TrafficGenerator(9, TrafficPlan(sessions=100)), census=True)
    assert msgspec.json.decode(summary.to_json(), type=ReplaySummary) == summary
    text = summary.to_text()
    assert f"{summary.finished} finished sessions" in text
    for stratum in summary.strata:
        assert f"\n{stratum.name} " in text
    rows = {
        (row.assistant, row.assistant_version)
        for row in (*summary.rates, *(summary.census or ()))
        if row.measure == "reverted"
    }
    assert text.count("correction/reverted") == len(rows)


async def test_replay_screens_as_production_does_and_its_census_judges_all(tmp_path: Path) -> None:
    traffic = TrafficGenerator(7, TrafficPlan(sessions=120))
    policy = tmp_path / "policy.yaml"
    policy.write_text(ALL.replace("correction", "correction_whole"), encoding="utf-8")
    path = _write(tmp_path / "input.jsonl", (delivery.event for delivery in traffic.deliveries(BASE)))
    common = {"sampling.policy": str(policy)}
    screen = {"judge.screen.model": "lexical", "judge.screen.audit_share": 0.25}
    seen: list[Record] = []
    plain = await run_replay(path, _settings(**common), census=True)
    found = await run_replay(path, _settings(**common, **screen), census=True, observe=seen.append)
    judged = [record for record in seen if isinstance(record, Judgement)]
    out = found.strata[0].skipped["screened_out"]
    assert out == sum(item.screen is not None and item.screen.out for item in judged) > 20
    assert found.strata[0].verdicts + out == plain.strata[0].verdicts == len(judged)
    assert found.census == plain.census
    assert {item.screen.verdict for item in judged if item.screen is not None} == {"look", "clear"}
    rates = [(mine.interval, plain.rates[place].raw) for place, mine in enumerate(found.rates)]
    assert sum(known.low <= (raw or 0.0) <= known.high for known, raw in rates) >= 0.9 * len(rates)
