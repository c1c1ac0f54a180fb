"""The correction rubric over a whole transcript: all of its corrections in one question."""

from monitor.rubrics.correction_whole.rubric import CorrectionWholeRubric
from monitor.rubrics.correction_whole.window import CorrectionWholeWindow

__all__ = ["CorrectionWholeRubric", "CorrectionWholeWindow"]
