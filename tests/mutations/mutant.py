"""One mutant: a place in the source where a rule is kept, and the same place with the rule switched off."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A rule of the design switched off, and the tests that have to notice.

    `old` is source text that stands exactly once in the file at `path`, `new` what it becomes. `tests` are pytest
    node ids without parameters: fast ones, and those whose subject is the rule.
    """

    rule: str
    title: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]

    def patched(self, source: str) -> str:
        """Give the file's source with the rule switched off. Raises `ValueError` when `old` has to be adapted."""
        found = source.count(self.old)
        if found != 1:
            raise ValueError(f"{self.rule} {self.title}: `old` stands {found} times in {self.path}, not once")
        return source.replace(self.old, self.new)
