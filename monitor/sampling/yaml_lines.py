"""YAML that remembers its lines, so that a mistake can be shown where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from monitor.errors import PolicyError


class YamlLines:
    """A YAML mapping with the line of each of its nodes.

    Raises `PolicyError` that names the source and the line on anything but a YAML mapping, and on a key that is
    given twice (YAML libraries keep the last one silently).
    """

    def __init__(self, text: str, source: str) -> None:
        self._source = source
        try:
            # Both use the safe loader: no tag of a file makes an object.
            self._root = yaml.compose(text, Loader=yaml.SafeLoader)
            self._refuse_twice(self._root, [])
            self.values: Any = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            raise PolicyError(f"{source}{_mark(error)}: not valid YAML: {_brief(error)}") from None
        if not isinstance(self.values, dict):
            raise PolicyError(f"{source}:1: must be a mapping with the keys strata and holdout")

    def describe(self, loc: Sequence[int | str], message: str) -> str:
        """Say what is wrong with the value at `loc`: source, line, stratum, key, value, message."""
        parts = [f"{self._source}:{self.line(loc)}"]
        stratum = self._value([*loc[:2], "name"]) if len(loc) > 1 and loc[0] == "strata" else None
        if len(loc) > 1 and loc[0] == "strata":
            parts.append(
                f"stratum {stratum!r}" if isinstance(stratum, str) else f"stratum number {int(loc[1]) + 1}"
            )
            loc_shown, value = loc[2:], self._value(loc)
        else:
            loc_shown, value = loc, self._value(loc)
        key = ".".join(str(part) for part in loc_shown)
        if key:
            shown = "" if value is None or isinstance(value, dict | list) else f" = {repr(value)[:200]}"
            parts.append(key + shown)
        return ": ".join([*parts, message])

    def line(self, loc: Sequence[int | str]) -> int:
        """Give the line, counted from 1, of the deepest node on the way to `loc` that exists."""
        node, line = self._root, 1
        for part in loc:
            found = _step(node, part)
            if found is None:
                break
            node, line = found
        return line

    def _value(self, loc: Sequence[int | str]) -> Any:
        value = self.values
        for part in loc:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def _refuse_twice(self, node: yaml.Node | None, above: list[yaml.Node]) -> None:
        if any(node is other for other in above):
            raise ValueError("an alias refers to itself")
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode):
                    raise PolicyError(f"{self._source}:{line}: a key must be a plain word")
                if key.value in seen:
                    raise PolicyError(f"{self._source}:{line}: {key.value}: the key is given twice")
                seen.add(str(key.value))
                self._refuse_twice(value, [*above, node])
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self._refuse_twice(item, [*above, node])


def _step(node: yaml.Node | None, part: int | str) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == part:
                return value, key.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        item = node.value[part]
        return item, item.start_mark.line + 1
    return None


def _mark(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f":{mark.line + 1}" if mark is not None else ""


def _brief(error: Exception) -> str:
    problem = getattr(error, "problem", None)
    return str(problem) if problem else " ".join(str(error).split())[:200] or type(error).__name__
