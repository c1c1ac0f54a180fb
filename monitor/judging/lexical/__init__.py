"""The lexical judge: string rules, no model."""

from monitor.judging.lexical.judge import LexicalJudge

__all__ = ["LexicalJudge"]
