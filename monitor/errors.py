"""Every error that Backslide raises on purpose, as one tree.

BackslideError
├── ConfigError             a setting or a file of settings is wrong (the command exits with 2)
│   └── PolicyError         a sampling policy is wrong: names the stratum, the line and the reason
├── TopicError              a topic is missing or has a wrong setting: names the topic and the command
├── InvalidEvent            one event can't be accepted: carries a closed-set reason
├── InputError              a file given to an offline command can't be read: names the file and the line
├── InvalidVerdict          a judge's answer breaks the rubric: a sentence fit to show to the judge
├── JudgeError              a provider failed to give an answer
│   ├── JudgeUnavailable    transient: rate limit, overload, timeout, dropped connection, garbage
│   └── JudgeFatal          permanent until someone acts: bad key, unknown model, spend limit
└── StoreError              the store can't be used: names the database and what to do
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monitor.judgement import Usage
    from monitor.judging.quota import Limits


class BackslideError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(BackslideError):
    """A setting is wrong. The message names the key, the value and what is allowed."""


class PolicyError(ConfigError):
    """A sampling policy is wrong. The message names the stratum and, where known, the line."""


class TopicError(BackslideError):
    """A topic is missing or wrongly set up. The message names the topic and the command that mends it."""


class InputError(BackslideError):
    """A file given to an offline command is wrong. The message names the file and the line."""


class InvalidEvent(BackslideError):
    """One event can't be accepted.

    `reason` is one of `EVENT_ERRORS` in `monitor.events` (the closed set behind
    `events_invalid_total{reason}`); the message says what is wrong and where.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class InvalidVerdict(BackslideError):
    """A judge's answer breaks the schema or the rubric. The message is quoted to the judge in the repair.

    `faults` are sentences, one a fault; the message has the first five.
    """

    def __init__(self, *faults: str) -> None:
        most = 5
        told = f", the first {most} of which are" if len(faults) > most else ""
        head = f"{len(faults)} faults{told}: " if len(faults) > 1 else ""
        super().__init__(head + " ".join(faults[:most]))
        self.faults = faults


class JudgeError(BackslideError):
    """A provider gave no usable answer. `error_type` is one of `ERROR_TYPES` in `monitor.judging.model`.

    `retry_after` is the provider's wish in seconds, if it gave one. `usage` is what an unusable answer cost all
    the same, `request_id` the provider's name for the call, `limits` what the reply told of its limits.
    """

    def __init__(
        self,
        error_type: str,
        message: str,
        *,
        retry_after: float | None = None,
        request_id: str | None = None,
        usage: Usage | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.retry_after = retry_after
        self.request_id = request_id
        self.usage = usage
        self.limits = limits


class JudgeUnavailable(JudgeError):
    """Transient: worth another try within the job's deadline."""


class JudgeFatal(JudgeError):
    """Not worth another try until someone acts (key, model name, spend limit)."""


class StoreError(BackslideError):
    """The store can't be opened, migrated or written. The message names the database and the remedy."""
