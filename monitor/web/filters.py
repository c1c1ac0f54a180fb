"""The filters of the list, as its form sends them. Days are whole days in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Final

from starlette.exceptions import HTTPException

from monitor.store import SessionFilter

PAGE_SIZE: Final = 50
TEXTS: Final = ("session_id", "rubric", "stratum", "kind", "failure", "assistant", "assistant_version")
_MAX_DIGITS: Final = 18  # what 64 bits hold


def read(query: Mapping[str, str]) -> SessionFilter:
    """Read the filters from a query; empty fields filter nothing. Raises `HTTPException` (400)."""
    texts = {name: query.get(name) or None for name in TEXTS}
    return SessionFilter(
        **texts,
        since=_midnight(query, "since"),
        until=_midnight(query, "until", days=1),
        before=_before(query.get("before") or None),
        limit=PAGE_SIZE,
    )


def narrows(wanted: SessionFilter) -> bool:
    """Say whether any filter is set; the place in the list is none."""
    return any(getattr(wanted, name) is not None for name in (*TEXTS, "since", "until"))


def _midnight(query: Mapping[str, str], name: str, days: int = 0) -> int | None:
    """Give the beginning of a day, or of the day after so many, in Unix milliseconds."""
    value = query.get(name)
    if not value:
        return None
    try:
        day = date.fromisoformat(value) + timedelta(days=days)
    except (ValueError, OverflowError):
        raise HTTPException(400, f"Write the day of \u201c{name}\u201d as 2026-01-31.") from None
    return round(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)


def _before(value: str | None) -> int | None:
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS):
        raise HTTPException(400, "The page number in the address is damaged. Go back to the newest sessions.")
    return int(value)
