"""What tests of limits and of the gate share."""

from monitor.judging.model import JudgeRequest, Message

REQUEST = JudgeRequest(
    rubric="correction",
    window_id="T1",
    system="s" * 3_000,
    messages=(Message(role="user", text="u" * 600),),
    schema={},
    max_tokens=8_192,
    window=None,
)
