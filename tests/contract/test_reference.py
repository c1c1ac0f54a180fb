"""docs/metrics.md and docs/configuration.md say what the code declares."""

from __future__ import annotations

from pathlib import Path

from monitor.reference import metrics_reference, settings_reference

DOCS = Path(__file__).parents[2] / "docs"


def test_the_metrics_page_is_up_to_date() -> None:
    """Mend with: backslide reference metrics > docs/metrics.md."""
    assert (DOCS / "metrics.md").read_text() == metrics_reference()


def test_the_settings_page_is_up_to_date() -> None:
    """Mend with: backslide reference settings > docs/configuration.md."""
    assert (DOCS / "configuration.md").read_text() == settings_reference()
