"""The hallucination rubric: unsupported claims, where they come from, and how they spread."""

from monitor.rubrics.hallucination.rubric import HallucinationRubric
from monitor.rubrics.hallucination.window import HallucinationWindow

__all__ = ["HallucinationRubric", "HallucinationWindow"]
