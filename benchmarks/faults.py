"""Ways in which a provider fails, as a wire-level server sends them, and what each one is to lead to.

`leads_to` names the ends of jobs that meet the fault for good, as `judge_faults` names them. A fault that passes
ends in a verdict, unless it is about the request itself.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from benchmarks.dialects import Dialect, Fault, fatal
from tests.services import messages_api
from tests.services.messages_api import Reply

FAR_FUTURE: Final = "2099-01-01T00:00:00Z"
FAR_PAST: Final = "2001-01-01T00:00:00Z"
MEGABYTE: Final = 1_000_000

PATIENT: Final = frozenset({"put off (retry_after)", "put off (down)"})
INVALID: Final = frozenset({"unscored (invalid)"})
OWN_FAULT: Final = frozenset({"unscored (error)", "fatal (invalid_request)", "put off (down)"})


def faults(dialect: Dialect, right: str, other: str) -> list[Fault]:
    """Give all faults: `right` is the answer to the question that will be asked, `other` the one to another."""
    return [
        *_statuses(dialect),
        *_transport(dialect, right),
        *_bodies(dialect, right),
        *_answers(dialect, right, other),
        *dialect.own(),
    ]


def _statuses(say: Dialect) -> list[Fault]:
    plain = [Fault(name=f"{status}", reply=say.failure(status)) for status in (408, 409, 500, 502, 503, 504, 529)]
    return [
        Fault(name="400", reply=say.failure(400), leads_to=OWN_FAULT),
        Fault(name="401", reply=say.failure(401), leads_to=fatal("authentication")),
        Fault(name="402", reply=say.failure(402), leads_to=fatal("spend_limit")),
        Fault(name="403", reply=say.failure(403), leads_to=fatal("permission")),
        Fault(name="404", reply=say.failure(404), leads_to=fatal("not_found")),
        Fault(name="413", reply=say.failure(413), leads_to=frozenset({"unscored (error)"})),
        Fault(name="422", reply=say.failure(422), leads_to=OWN_FAULT),
        Fault(name="429", reply=say.failure(429)),
        Fault(name="429, retry-after 2 s", reply=say.failure(429, retry_after="2")),
        Fault(name="429, retry-after an hour", reply=say.failure(429, retry_after="3600"), leads_to=PATIENT),
        Fault(name="429, retry-after a word", reply=say.failure(429, retry_after="soon")),
        Fault(name="429, reset in 2099", reply=_with(say.failure(429), say.used_up(FAR_FUTURE))),
        Fault(name="429, reset in 2001", reply=_with(say.failure(429), say.used_up(FAR_PAST))),
        *plain,
        Fault(name="529, each second call", reply=say.failure(529), every=2, leads_to=frozenset({"verdict"})),
        Fault(name="a 400 of a proxy (HTML)", reply=messages_api.html(400)),
        Fault(name="a 503 of a proxy (HTML)", reply=messages_api.html(503)),
    ]


def _transport(say: Dialect, right: str) -> list[Fault]:
    whole = say.answer(right)
    half = len(whole.body) // 2
    longer = {"content-length": str(len(whole.body) + 100_000)}
    shorter = {"content-length": str(half)}
    return [
        Fault(name="hangs before the headers", reply=messages_api.hang()),
        Fault(name="hangs in the body", reply=_with(whole, longer)),
        Fault(name="sends more than it says", reply=_with(whole, shorter)),
        Fault(name="trickles", reply=msgspec.structs.replace(whole, pause_s=0.05)),
        Fault(name="drops before the headers", reply=msgspec.structs.replace(whole, sent=None)),
        Fault(name="drops in the body", reply=msgspec.structs.replace(whole, sent=half)),
        Fault(name="says gzip and isn't", reply=_with(whole, {"content-encoding": "gzip"})),
    ]


def _bodies(say: Dialect, right: str) -> list[Fault]:
    whole = say.answer(right)
    latin = whole.body.replace(b"Sorry", "Désolé".encode("latin-1"))
    return [
        Fault(name="200, HTML", reply=messages_api.html()),
        Fault(name="200, nothing", reply=messages_api.raw(b"")),
        Fault(name="200, {}", reply=messages_api.raw(b"{}")),
        Fault(name="200, []", reply=messages_api.raw(b"[]")),
        Fault(name="200, null", reply=messages_api.raw(b"null")),
        Fault(name="200, half of the JSON", reply=messages_api.raw(whole.body[: len(whole.body) // 2])),
        Fault(name="200, an error object", reply=msgspec.structs.replace(say.failure(500), status=200)),
        Fault(name="200, Latin-1", reply=messages_api.raw(latin)),
        Fault(name="200, 50,000 brackets", reply=messages_api.raw(b'{"a": ' + b"[" * 50_000)),
        Fault(name="an unknown end", reply=say.answer(right, "of_the_world")),
    ]


def _answers(say: Dialect, right: str, other: str) -> list[Fault]:
    answer = json.loads(right)

    def changed(**fields: Any) -> str:
        return json.dumps(answer | fields)

    def wrong(name: str, text: str) -> Fault:
        return Fault(name=name, reply=say.answer(text), leads_to=INVALID)

    cut = say.answer(right[: len(right) // 2], "length")
    whole_but_cut = say.answer(right, "length")
    return [
        Fault(name="refusal", reply=say.refusal(), leads_to=frozenset({"unscored (judge_refused)"})),
        Fault(name="truncated", reply=cut, leads_to=frozenset({"unscored (truncated)"})),
        Fault(name="truncated after the end", reply=whole_but_cut, leads_to=frozenset({"unscored (truncated)"})),
        wrong("empty answer", ""),
        wrong("blank answer", " \n "),
        wrong("prose", "The assistant did take the correction."),
        wrong("extra text around it", f"Here you are: {right} Anything else?"),
        wrong("two answers", f"{right}\n{right}"),
        wrong("a field missing", json.dumps({name: answer[name] for name in list(answer)[:-1]})),
        wrong("a field too many", changed(score=5)),
        wrong("off the enum", changed(failure_mode="sort_of")),
        wrong("off the scale", changed(persistence=6)),
        wrong("a number as text", changed(persistence="5")),
        wrong("an invented quote", changed(acknowledgment_quote="You are so right, five it is")),
        wrong("a turn that isn't there", changed(first_right_use_turn_index=33)),
        wrong("scores against its mode", changed(incorporation_accuracy=1)),
        wrong("the answer to another request", other),
        wrong("a megabyte of rationale", changed(rationale="so " * (MEGABYTE // 3))),
    ]


def _with(reply: Reply, headers: dict[str, str]) -> Reply:
    return msgspec.structs.replace(reply, headers=reply.headers | headers)
