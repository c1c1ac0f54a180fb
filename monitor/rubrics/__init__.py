"""The rubrics, by name."""

from __future__ import annotations

from typing import Final

from monitor.rubrics.base import Rubric
from monitor.rubrics.correction import CorrectionRubric

RUBRICS: Final[dict[str, Rubric]] = {"correction": CorrectionRubric()}
