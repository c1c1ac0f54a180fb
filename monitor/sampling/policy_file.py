"""A policy file that may change while the sampler runs (S1)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from monitor.errors import PolicyError
from monitor.sampling.policy import Policy, default_policy, parse_policy

ReloadResult: TypeAlias = Literal["loaded", "unchanged", "refused"]


class Reload(msgspec.Struct, kw_only=True, frozen=True):
    """What came of a changed file: `policy` is the one in force from now on.

    `loaded`: a new policy; `unchanged`: the file says the same in other words; `refused`: it is broken, `reason`
    says where, and the old policy stays.
    """

    result: ReloadResult
    policy: Policy
    reason: str | None = None


class PolicyFile:
    """The policy in force, and the file that it comes from (None: the built-in policy, which never changes).

    Raises `PolicyError` when the file can't be read or is wrong at the start; later it can only be refused.
    """

    def __init__(self, path: Path | None, *, rubrics: Collection[str]) -> None:
        self._path = path
        self._rubrics = frozenset(rubrics)
        self._seen: bytes | str = b""
        if path is None:
            self.policy = default_policy(self._rubrics)
        else:
            self._seen = self._read(path)
            self.policy = self._parse(path, self._seen)

    def poll(self) -> Reload | None:
        """Read the file again; None when nothing changed since the last time, a refusal included."""
        if self._path is None:
            return None
        content = self._read(self._path)
        if content == self._seen:
            return None
        self._seen = content
        try:
            policy = self._parse(self._path, content)
        except PolicyError as error:
            return Reload(result="refused", policy=self.policy, reason=str(error))
        if policy.version == self.policy.version:
            return Reload(result="unchanged", policy=self.policy)
        self.policy = policy
        return Reload(result="loaded", policy=policy)

    def _read(self, path: Path) -> bytes | str:
        """Give the file's bytes, or why they can't be had."""
        try:
            return path.read_bytes()
        except OSError as error:
            return f"can't be read: {error.strerror}"

    def _parse(self, path: Path, content: bytes | str) -> Policy:
        if isinstance(content, str):
            raise PolicyError(f"{path}: {content}")
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise PolicyError(f"{path}: not UTF-8: byte {error.start}") from None
        return parse_policy(text, source=str(path), rubrics=self._rubrics)
