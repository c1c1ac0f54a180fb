"""The rubrics, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from monitor.errors import ConfigError
from monitor.rubrics.base import Rubric
from monitor.rubrics.conversation import ConversationRubric
from monitor.rubrics.correction import CorrectionRubric
from monitor.rubrics.correction_whole import CorrectionWholeRubric
from monitor.rubrics.hallucination import HallucinationRubric
from monitor.rubrics.refusal import RefusalRubric
from monitor.settings import RubricSettings

RUBRICS: Final[dict[str, Rubric]] = {
    "conversation": ConversationRubric(),
    "correction": CorrectionRubric(),
    "correction_whole": CorrectionWholeRubric(),
    "hallucination": HallucinationRubric(),
    "refusal": RefusalRubric(),
}
"""With the default thresholds. What a rubric counts doesn't depend on its thresholds."""


def configured(settings: RubricSettings) -> dict[str, Rubric]:
    """Give the rubrics with the thresholds of the settings."""
    return {name: type(rubric)(**getattr(settings, name).model_dump()) for name, rubric in RUBRICS.items()}


def named(name: str, rubrics: Mapping[str, Rubric] = RUBRICS) -> Rubric:
    """Give a rubric by its name. Raises `ConfigError` that lists those there are."""
    if name not in rubrics:
        raise ConfigError(f"rubric {name!r}: there is no such rubric; allowed are {', '.join(sorted(rubrics))}")
    return rubrics[name]
