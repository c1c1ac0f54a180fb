"""The part of the local server that speaks /v1/messages/batches: create, list, retrieve, results, cancel.

Batches stay in progress until the test ends them. Results come in another order than requests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

Result: TypeAlias = dict[str, Any]
Answerer: TypeAlias = Callable[[str, dict[str, Any]], Result]
OK: Final = 200
PATH: Final = "/v1/messages/batches"
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Batches:
    """The batches of one server, by id. `check` says what is wrong with the parameters of a request, or None."""

    def __init__(self, check: Callable[[dict[str, Any]], str | None]) -> None:
        self.requests: dict[str, dict[str, dict[str, Any]]] = {}
        self.results: dict[str, dict[str, Result]] = {}
        self.canceled: list[str] = []
        self.created: dict[str, str] = {}
        self._check = check

    def end(self, batch: str, answer: Answerer) -> None:
        """End a batch with an answer to each of its requests, by custom_id and parameters."""
        self.results[batch] = {name: answer(name, params) for name, params in self.requests[batch].items()}

    @property
    def open(self) -> list[str]:
        """The batches that have not ended, the oldest first."""
        return [batch for batch in self.requests if batch not in self.results]

    def answer(self, method: str, path: str, body: dict[str, Any], base_url: str) -> tuple[int, Any]:
        """Serve a request to a path below the batches; gives status, and body or what is wrong."""
        batch, _, action = path.partition("/")
        if not batch and method == "POST":
            status, found = self._create(body)
            return (status, found) if status != OK else (OK, self._shown(found, base_url))
        if not batch:
            newest = [self._shown(item, base_url) for item in reversed(self.requests)]
            return OK, {"data": newest, "has_more": False}
        if batch not in self.requests:
            return 404, "no such batch"
        if action == "results":
            return OK, self._lines(batch)
        if action == "cancel":
            self.canceled.append(batch)
        return OK, self._shown(batch, base_url)

    def _create(self, body: dict[str, Any]) -> tuple[int, str]:
        requests = body.get("requests") or []
        ids = [item.get("custom_id", "") for item in requests]
        if not ids or len(set(ids)) < len(ids) or not all(_ID.fullmatch(item) for item in ids):
            return 400, "requests: custom_id must be unique and match"
        wrong = next((found for item in requests if (found := self._check(item["params"]))), None)
        if wrong:
            return 400, wrong
        batch = f"msgbatch_{len(self.requests) + 1}"
        self.requests[batch] = {item["custom_id"]: item["params"] for item in requests}
        self.created[batch] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        return 200, batch

    def _shown(self, batch: str, base_url: str) -> dict[str, Any]:
        """Describe a batch. Counts stay with `processing` until all of it has ended."""
        ended = batch in self.results
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        for name in self.requests[batch]:
            counts[self.results[batch][name]["type"] if ended else "processing"] += 1
        return {
            "id": batch,
            "type": "message_batch",
            "processing_status": "ended" if ended else "canceling" if batch in self.canceled else "in_progress",
            "request_counts": counts,
            "created_at": self.created[batch],
            "expires_at": self.created[batch],
            "ended_at": self.created[batch] if ended else None,
            "archived_at": None,
            "cancel_initiated_at": None,
            "results_url": f"{base_url}{PATH}/{batch}/results" if ended else None,
        }

    def _lines(self, batch: str) -> bytes:
        """Give the results, JSON lines, the last request first."""
        found = self.results[batch].items()
        return b"".join(
            json.dumps({"custom_id": name, "result": result}).encode() + b"\n"
            for name, result in reversed(list(found))
        )
