"""What every part of the settings is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of the settings; unknown keys are refused, so that a typo is seen."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
