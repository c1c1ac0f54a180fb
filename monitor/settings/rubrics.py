"""Settings of the rubrics: every threshold."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from monitor.settings.section import Section


class CorrectionSettings(Section):
    """The correction rubric."""

    extractor: Literal["lexical", "model"] = Field(
        default="lexical",
        description="Who finds corrections that no producer names: wording rules, which miss 15 to 50 % of them, "
        "or the judge, for one more call a session that shows it the whole transcript.",
    )
    replies: int = Field(default=4, ge=1, le=50, description="Assistant turns that an event's window follows up.")
    max_events: int = Field(default=8, ge=1, le=100, description="Corrections judged in a session.")
    review_score: float = Field(
        default=0.7, ge=0, le=1, description="Response score under which corrections are candidates for review."
    )
    high_risk_composite: float = Field(
        default=3.0, ge=1, le=5, description="Composite under which one of a high-risk session goes to a person."
    )


class HallucinationSettings(Section):
    """The hallucination rubric."""

    evidence_scope: Literal["session", "turn"] = Field(
        default="session", description="Whether passages of earlier turns support a claim, or only the turn's own."
    )
    window_turns: int = Field(default=20, ge=2, le=100, description="Assistant turns in one question.")
    overlap_turns: int = Field(
        default=4, ge=0, le=50, description="Of those, shown again from the question before."
    )
    min_groundedness: float = Field(default=0.8, ge=0, le=1, description="A session below it is a failing one.")

    @model_validator(mode="after")
    def _windows_go_on(self) -> HallucinationSettings:
        if self.overlap_turns >= self.window_turns:
            raise ValueError(
                f"overlap_turns = {self.overlap_turns} must be less than window_turns = {self.window_turns}"
            )
        return self


class ConversationSettings(Section):
    """The conversation rubric."""

    max_answers: int = Field(default=6, ge=1, le=100, description="Answers judged in a session.")
    pass_score: int = Field(default=4, ge=2, le=5, description="Score from which a dimension passes.")
    review_score: float = Field(
        default=0.7, ge=0, le=1, description="Overall score under which a high-risk answer goes to a person."
    )
    review_share: float = Field(
        default=0.1, ge=0, le=1, description="Share of the other failing answers that go to a person."
    )
    citation_forms: tuple[Literal["number", "id", "url"], ...] = Field(
        default=("number", "id", "url"),
        description="Which marks in a reply are citations: [1], [kb-17], URLs.",
    )
    citation_required: bool = Field(default=False, description="Whether each factual statement needs a citation.")
    context_turns: int = Field(default=60, ge=1, le=1_000, description="Turns shown from before an answer.")
    older_passages: int = Field(
        default=20, ge=0, le=200, description="Passages of earlier turns shown beside an answer's own."
    )


class CorrectionWholeSettings(Section):
    """The correction rubric over whole transcripts."""

    max_turns: int = Field(default=200, ge=2, description="Longer sessions are skipped: they fit no prompt.")
    replies: int = Field(
        default=4, ge=1, le=50, description="With fewer replies after a correction its persistence is unobserved."
    )
    review_score: float = Field(
        default=0.7, ge=0, le=1, description="Response score under which corrections are candidates for review."
    )
    high_risk_composite: float = Field(
        default=3.0, ge=1, le=5, description="Composite under which one of a high-risk session goes to a person."
    )


class RefusalSettings(Section):
    """The refusal rubric."""

    max_turns: int = Field(default=400, ge=2, description="Longer sessions are skipped: they fit no prompt.")


class RubricSettings(Section):
    """Thresholds of the rubrics."""

    conversation: ConversationSettings = ConversationSettings()
    correction: CorrectionSettings = CorrectionSettings()
    hallucination: HallucinationSettings = HallucinationSettings()
    correction_whole: CorrectionWholeSettings = CorrectionWholeSettings()
    refusal: RefusalSettings = RefusalSettings()
