"""How a question is written down, a line each: for people and programs (`plain`), or for a batch service."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from monitor.config import JudgeSettings
from monitor.decision import Job
from monitor.errors import ConfigError
from monitor.exchange.openai import batch_line
from monitor.judging.deferred import Question

Form: TypeAlias = Literal["plain", "anthropic", "openai"]
FORMS: Final = get_args(Form)
FILE_JUDGE: Final = "file"
_PROVIDERS: Final[dict[Form, str]] = {"anthropic": "anthropic", "openai": "openai_compatible"}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,127}")

Writer: TypeAlias = Callable[[Question, Job], bytes]


class FileJudge(msgspec.Struct, kw_only=True, frozen=True):
    """The instrument behind answers that came by file: named `<provider>:<model>`, or one word for a person."""

    name: str
    provider: str
    model: str


def file_judge(form: Form, said: str | None, settings: JudgeSettings) -> FileJudge:
    """Tell who answers: who is said, else the judge of the settings (`file` for `plain`). Raises `ConfigError`."""
    name = said or (FILE_JUDGE if form == "plain" else settings.model)
    provider, _, model = name.partition(":")
    wanted = _PROVIDERS.get(form)
    if not _NAME.fullmatch(name) or (wanted and (provider != wanted or not model)):
        example = f"{wanted}:<model>" if wanted else "person:ann, or the model that answers"
        raise ConfigError(f"judge {name!r}: for the form {form} name who answers, such as {example} (--judge)")
    return FileJudge(name=name, provider=provider, model=model or name)


def writer(form: Form, judge: FileJudge, settings: JudgeSettings) -> Writer:
    """Give what turns questions into lines of a form."""
    if form == "plain":
        return _plain
    if form == "anthropic":
        return _anthropic(judge, settings)
    return lambda question, _: msgspec.json.encode(
        batch_line(question.id, question.request, judge.model, settings)
    )


def _plain(question: Question, job: Job) -> bytes:
    request = question.request
    return msgspec.json.encode(
        {
            "id": question.id,
            "rubric": request.rubric,
            "session_id": job.session_id,
            "segment": job.segment,
            "window": request.window_id,
            "attempt": question.number,
            "system": request.system,
            "messages": [{"role": message.role, "content": message.text} for message in request.messages],
            "schema": request.schema,
            "max_tokens": request.max_tokens,
        }
    )


def _anthropic(judge: FileJudge, settings: JudgeSettings) -> Writer:
    # Imported here because the SDK takes seconds to load.
    from monitor.judging.anthropic import params_for  # noqa: PLC0415 - see above

    def write(question: Question, _: Job) -> bytes:
        params = params_for(
            question.request, model=judge.model, effort=settings.effort, cache_ttl=settings.cache_ttl
        )
        return msgspec.json.encode({"custom_id": question.id, "params": params})

    return write
