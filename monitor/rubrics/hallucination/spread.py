"""From claims to numbers: groundedness by turn and session, and the graph of what came back. Pure.

    groundedness of a turn = grounded / claims       claims that the user made are left out of both
    groundedness of a session = mean over the turns that have one
    graph: one edge a propagated claim, from the claim (or the unaudited turn) that it goes back to in the end

Where the judge names a claim that came from another one itself, the chain is followed to its first. Origins are
earlier than what comes of them, so there is no cycle; `rooted` checks that all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

Origin: TypeAlias = Mapping[str, Any]
CRITICAL_REPEATS: Final = 2


def groundedness(claims: Sequence[Mapping[str, Any]]) -> float | None:
    """Give grounded / claims, or None without a claim of the assistant's."""
    own = [claim for claim in claims if claim["source"] == "assistant"]
    return sum(claim["status"] == "grounded" for claim in own) / len(own) if own else None


def by_turn(turns: Sequence[int], claims: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give each audited turn with its number of claims and its groundedness."""
    rows = []
    for turn in turns:
        mine = [claim for claim in claims if claim["turn_index"] == turn]
        own = sum(claim["source"] == "assistant" for claim in mine)
        rows.append({"turn_index": turn, "claims": own, "groundedness": groundedness(mine)})
    return rows


def mean(turns: Sequence[Mapping[str, Any]]) -> float | None:
    """Give the mean groundedness over the turns that have one."""
    values = [turn["groundedness"] for turn in turns if turn["groundedness"] is not None]
    return sum(values) / len(values) if values else None


def rooted(claims: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give claims with the first claim of their chain as origin, as far as these go. `ValueError` on a cycle."""
    origins = {claim["claim_id"]: claim["propagated_from"] for claim in claims}
    return [{**claim, "propagated_from": _root(claim["claim_id"], origins)} for claim in claims]


def edges(claims: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give the propagation graph: from origin to what came of it."""
    return [
        {
            "from_turn_index": claim["propagated_from"]["turn_index"],
            "from_claim_id": claim["propagated_from"]["claim_id"],
            "to_turn_index": claim["turn_index"],
            "to_claim_id": claim["claim_id"],
            "link": claim["link"],
        }
        for claim in claims
        if claim["propagated_from"]
    ]


def returns(graph: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Give how often each origin came back. Origins are named by claim id, unaudited turns as `turn 3`."""
    return dict(Counter(edge["from_claim_id"] or f"turn {edge['from_turn_index']}" for edge in graph))


def is_critical(claims: Sequence[Mapping[str, Any]], graph: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether any claim contradicts its evidence, or any unsupported one came back twice or more."""
    contradicted = any(claim["status"] == "contradicts_evidence" for claim in claims)
    return contradicted or any(count >= CRITICAL_REPEATS for count in returns(graph).values())


def _root(claim_id: str | None, origins: Mapping[str | None, Origin | None]) -> Origin | None:
    seen: set[str | None] = set()
    root = None
    while (origin := origins.get(claim_id)) is not None:
        if claim_id in seen:
            raise ValueError(f"the claims {sorted(map(str, seen))} are each other's origin")
        seen.add(claim_id)
        root, claim_id = origin, origin["claim_id"]
    return root
