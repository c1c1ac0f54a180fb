"""The correction rubric: whether a user's correction was taken, and kept."""

from monitor.rubrics.correction.rubric import CorrectionRubric
from monitor.rubrics.correction.window import CorrectionWindow

__all__ = ["CorrectionRubric", "CorrectionWindow"]
