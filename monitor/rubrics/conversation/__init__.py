"""The conversation rubric: whether an assistant's answers from evidence are sound in their conversation."""

from monitor.rubrics.conversation.rubric import ConversationRubric
from monitor.rubrics.conversation.window import ConversationWindow

__all__ = ["ConversationRubric", "ConversationWindow"]
