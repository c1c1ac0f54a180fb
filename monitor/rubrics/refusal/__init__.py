"""The refusal rubric: whether a refusal holds when it is pushed."""

from monitor.rubrics.refusal.rubric import RefusalRubric
from monitor.rubrics.refusal.window import RefusalWindow

__all__ = ["RefusalRubric", "RefusalWindow"]
