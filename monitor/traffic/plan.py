"""What traffic is to look like: how much of it, how fast, and how the assistant behaves (pure)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

from monitor.traffic.labels import BEHAVIORS, FAILURES, Behavior


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BehaviorMix(_Part):
    """Shares of all correction events (0 to 1); what they leave is `taken`."""

    ignored: float = Field(default=0.07, ge=0, le=1)
    partial: float = Field(default=0.06, ge=0, le=1)
    reverted: float = Field(default=0.06, ge=0, le=1)
    superseded: float = Field(default=0.06, ge=0, le=0.4)
    disputed: float = Field(default=0.04, ge=0, le=1)
    over_applied: float = Field(default=0.04, ge=0, le=1)

    def share(self, behavior: Behavior) -> float:
        """Give the share of one behavior."""
        return float(getattr(self, behavior)) if behavior != "taken" else 1 - self._others()

    @model_validator(mode="after")
    def _leaves_taken(self) -> BehaviorMix:
        # A superseded correction is followed by one that is taken, so `taken` can't have less than that.
        if self._others() + self.superseded > 1:
            raise ValueError("the shares of behaviors leave too little for `taken`")
        return self

    def _others(self) -> float:
        return sum(float(getattr(self, name)) for name in BEHAVIORS if name != "taken")


class Release(_Part):
    """An assistant version and how it behaves."""

    version: str
    mix: BehaviorMix = BehaviorMix()


class TrafficPlan(_Part):
    """Everything that decides about generated traffic but the seed. Times are seconds, shares are 0 to 1.

    The defaults fit a live demo: 2,000 sessions in 45 s. For real speed raise `duration_s`, `pace_s` and the
    delays. `straggler_s` has to stay under the grace time of the assembler, `feedback_delay_s` decides what
    comes too late.
    """

    sessions: int = Field(default=2_000, ge=1, le=1_000_000)
    duration_s: float = Field(default=45.0, gt=0, description="Sessions start within this time.")
    pace_s: float = Field(default=0.3, gt=0, description="Mean time from one turn to the next.")
    corrected: float = Field(default=0.30, ge=0, le=1, description="Sessions with at least one correction.")
    several: float = Field(default=1 / 3, ge=0, le=1, description="Of those, sessions with two or three.")
    third: float = Field(default=0.3, ge=0, le=1, description="Of those, sessions with three.")
    heaviness: float = Field(
        default=2.6, ge=1, le=10, description="Failure rate with several corrections over that with one."
    )
    releases: tuple[Release, Release] = Field(
        default=(Release(version="2026.10"), Release(version="2026.11", mix=BehaviorMix(reverted=0.18))),
        description="The second one answers the sessions that start in the second half.",
    )
    escalated_plain: float = Field(default=0.009, ge=0, le=1, description="Escalated without any failure.")
    escalated_failed: float = Field(default=0.08, ge=0, le=1, description="Escalated after a failure.")
    escalated_reverted: float = Field(default=0.35, ge=0, le=1, description="Escalated after a reversion.")
    ended: float = Field(default=0.85, ge=0, le=1, description="Sessions with a session_end.")
    abandoned: float = Field(default=0.12, ge=0, le=1, description="Plain sessions that stop half-way.")
    unindexed: float = Field(default=0.20, ge=0, le=1, description="Sessions whose turns carry no turn_index.")
    truncated: float = Field(default=0.01, ge=0, le=1, description="Replies without a value that are cut off.")
    rated: float = Field(default=0.15, ge=0, le=1, description="Sessions with a thumb.")
    late_rating: float = Field(
        default=0.5, ge=0, le=1, description="Thumbs that come after the delay, not at once."
    )
    feedback_delay_s: float = Field(default=6.0, gt=0, description="Mean delay of a late thumb.")
    duplicates: float = Field(default=0.01, ge=0, le=1, description="Events that are delivered twice.")
    disordered: float = Field(default=0.03, ge=0, le=1, description="Events that are delivered late.")
    disorder_s: float = Field(default=0.4, ge=0, description="By how much at most.")
    stragglers: float = Field(default=0.005, ge=0, le=1, description="Turns that come after later ones.")
    straggler_s: float = Field(default=0.8, ge=0, description="By how much they are late at most.")

    @model_validator(mode="after")
    def _mixes_fit(self) -> TrafficPlan:
        for release in self.releases:
            for heavy in (False, True):
                if sum(self.odds(release.mix, heavy=heavy)[1:]) > 1:
                    raise ValueError(
                        f"heaviness and the mix of {release.version} give more than one failure a correction"
                    )
        return self

    def odds(self, mix: BehaviorMix, *, heavy: bool) -> list[float]:
        """Give the probability of each of `BEHAVIORS` for a correction in a light or a heavy session.

        Failures are `heaviness` times as likely in heavy sessions (two or more corrections), and over all
        correction events the shares of the mix come out. Each draw of `superseded` brings a second event, so
        draws are rarer than events by 1 - superseded.
        """
        factor = self._failure_factor(heavy=heavy) / (1 - mix.superseded)
        drawn = {name: mix.share(name) * factor for name in FAILURES}
        drawn["superseded"] = mix.superseded / (1 - mix.superseded)
        drawn["taken"] = max(0.0, 1 - sum(drawn.values()))
        return [drawn[name] for name in BEHAVIORS]

    def _failure_factor(self, *, heavy: bool) -> float:
        light_events = 1 - self.several
        heavy_events = self.several * (2 + self.third)
        light = (light_events + heavy_events) / (light_events + self.heaviness * heavy_events)
        return light * self.heaviness if heavy else light
