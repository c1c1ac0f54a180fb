"""The judge process asks its provider about the model: before anything else, and again while it runs.

Only the first look can stop the process. Later ones tell of what was decided meanwhile (a model is deprecated, its
retirement date moves), and a provider that was away at the start is asked again until it answers.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from monitor.errors import ConfigError, JudgeError
from monitor.judging.check import Checked, check_judge
from monitor.judging.model import JudgeModel
from monitor.metrics import Meters
from monitor.settings import InstrumentSettings

AGAIN_S: Final = 21_600.0
RETRY_S: Final = 60.0


class JudgeCheck:
    """Looks at one model through its provider and says what it finds, each thing once. Times are seconds."""

    def __init__(
        self,
        model: JudgeModel,
        settings: InstrumentSettings,
        meters: Meters,
        *,
        again_s: float = AGAIN_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self._model = model
        self._settings = settings
        self._meters = meters
        self._again = again_s
        self._retry = retry_s
        self._said: set[str] = set()
        self._log = structlog.get_logger().bind(process="judge", judge=model.name)

    async def first(self) -> bool:
        """Look for the first time; tell whether the provider could be asked. Raises `ConfigError`."""
        try:
            self._note(await check_judge(self._model, self._settings))
        except JudgeError as error:
            self._say("judge_unchecked", f"{error}: the model could not be checked; going on, and asking again")
            return False
        return True

    async def watch(self, asked: bool) -> None:
        """Look again and again, until canceled; `asked` is what `first` said."""
        wait = self._again if asked else self._retry
        while True:
            await asyncio.sleep(wait)
            asked = await self._look()
            wait = self._again if asked else min(2 * wait, self._again)

    async def _look(self) -> bool:
        try:
            return await self.first()
        except ConfigError as error:
            # Jobs under way wait for a judge that can't be asked; ending the process would not help them.
            self._say("judge_unfit", str(error))
            return True
        except Exception as error:  # noqa: BLE001 - a look that fails must not be the last one
            self._log.error("judge_check_failed", error=type(error).__name__)
            return False

    def _note(self, checked: Checked) -> None:
        for warning in checked.warnings:
            self._say("judge_warning", warning)
        labels = {"provider": self._model.provider, "model": self._model.model}
        if checked.facts.retires_at is None:
            self._meters.forget("judge_model_retires_timestamp_seconds", **labels)
        else:
            self._meters.gauge("judge_model_retires_timestamp_seconds", **labels).set(checked.facts.retires_at)

    def _say(self, event: str, reason: str) -> None:
        if reason not in self._said:
            self._said.add(reason)
            self._log.warning(event, reason=reason)
