"""Prompts: load a rubric's prompt folder, render it around an untrusted transcript, and hash it (J2).

A prompt is data: `prompts/<rubric>/<version>.toml` with `system`, `user`, `repair` and a list of `examples`. What
a session says goes only into the user message: JSON-encoded, with control and bidi characters as escapes, between
two fence lines whose nonce is a hash of that very content. So a transcript can't close its fence, and a stored
judgement's prompt can be rebuilt byte for byte from the session, the rubric version and the prompt file.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
import unicodedata
from collections.abc import Callable, Mapping
from importlib.resources.abc import Traversable
from typing import Any, Final

import msgspec

from monitor.errors import ConfigError
from monitor.ignorable import IGNORABLE
from monitor.judging.prompt_files import newest_frozen, package, read_prompt

NO_CONSTRAINTS: Final = "(none)"

_PLACEHOLDER: Final = re.compile(r"\{\{ *([a-z_]+) *\}\}")
_UNUSUAL: Final = re.compile(r"[^ -~\n]")


class Example(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One worked example: the fields of a window and the answer expected for it, both JSON texts."""

    title: str
    fields: str
    answer: str


class _PromptFile(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    system: str
    user: str
    repair: str
    examples: tuple[Example, ...] = ()


class Prompt(msgspec.Struct, kw_only=True, frozen=True):
    """A prompt version with an assistant's constraints: all that a request is rendered from but the window.

    `system` is complete (role, rules, examples, constraints) and the same for every session that this prompt
    judges, so that providers can cache it. `prompt_hash` covers system, user and repair. `first` is the prompt of
    the question that comes before the others (`led`); version and hash are then those of both.
    """

    rubric: str
    version: str
    system: str
    user: str
    repair: str
    examples: tuple[Example, ...]
    prompt_hash: str
    constraints: str = ""
    first: Prompt | None = None

    def user_text(self, fields: Mapping[str, Any]) -> str:
        """Render the user message from a window's fields. Raises `ConfigError` for a field that isn't there."""
        return _fill(self.user, {name: encode(value) for name, value in fields.items()} | {"fence": fence(fields)})

    def repair_text(self, error: str) -> str:
        """Render the message that asks for the answer again and quotes what was wrong with it.

        The error quotes the answer, which may quote the transcript: it is fenced as well.
        """
        return _fill(self.repair, {"error": encode(error), "fence": fence({"error": error})})


class Prompts:
    """The prompts in use, each loaded once for a rubric and a text of constraints (`judge.constraints`)."""

    def __init__(self, constraints: Mapping[str, str], load: Callable[[str, str], Prompt] | None = None) -> None:
        self._constraints = constraints
        self._load = load or _newest
        self._loaded: dict[tuple[str, str], Prompt] = {}

    def of(self, rubric: str, assistant: str | None) -> Prompt:
        """Give a rubric's prompt for an assistant. Raises `ConfigError`."""
        key = (rubric, constraints_for(self._constraints, assistant))
        if key not in self._loaded:
            self._loaded[key] = self._load(*key)
        return self._loaded[key]


def load(
    rubric: str, version: str | None = None, *, constraints: str = "", folder: Traversable | None = None
) -> Prompt:
    """Load a prompt version, by default the newest frozen one, of the package or of another folder of prompts.

    `constraints` is the free text of an assistant (domain rules, tone, what must be refused). Raises `ConfigError`
    that names the file when it is missing, wrong, or frozen and changed since.
    """
    place = folder or package()
    version = version or newest_frozen(rubric, place)
    raw = read_prompt(rubric, version, place)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"prompts/{rubric}/{version}.toml: {error}") from None
    return parse(text, rubric=rubric, version=version, constraints=constraints)


def parse(text: str, *, rubric: str, version: str, constraints: str = "") -> Prompt:
    """Make a prompt from the text of a prompt file. Raises `ConfigError`."""
    try:
        file = msgspec.convert(tomllib.loads(text), _PromptFile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"prompts/{rubric}/{version}.toml: {error}") from None
    system = _fill(
        file.system, {"examples": _shown(file.examples), "constraints": encode(constraints or NO_CONSTRAINTS)}
    )
    return Prompt(
        rubric=rubric,
        version=version,
        system=system,
        user=file.user,
        repair=file.repair,
        examples=file.examples,
        prompt_hash=_hash(rubric, version, system, file.user, file.repair),
        constraints=constraints,
    )


def led(prompt: Prompt, first: Prompt) -> Prompt:
    """Give a prompt that comes with another one for the question before it: a version and a hash for the two."""
    return msgspec.structs.replace(
        prompt,
        version=f"{prompt.version}+{first.version}",
        prompt_hash=_hash(prompt.prompt_hash, first.prompt_hash),
        first=first,
    )


def constraints_for(constraints: Mapping[str, str], assistant: str | None) -> str:
    """Pick an assistant's constraints from the settings (`judge.constraints`): for all (`*`), then its own."""
    return "\n".join(constraints[key] for key in ("*", assistant) if key is not None and key in constraints)


def encode(value: Any) -> str:
    """Encode a value as JSON with nothing invisible in it; a list gets one line an item."""
    if isinstance(value, list | tuple):
        return "[\n" + ",\n".join(encode(item) for item in value) + "\n]" if value else "[]"
    return visible(json.dumps(value, ensure_ascii=False))


def visible(encoded: str) -> str:
    """Escape control, bidi and other invisible characters of a JSON text; it decodes to the same value."""
    return _UNUSUAL.sub(lambda match: json.dumps(match[0])[1:-1] if _hidden(match[0]) else match[0], encoded)


def fence(fields: Mapping[str, Any]) -> str:
    """Derive the nonce of a window's fence from its content: 16 hex digits that do not occur in it."""
    content = "\n".join(f"{name}={encode(fields[name])}" for name in sorted(fields))
    nonce = _hash(content)[:16]
    while nonce in content:
        nonce = _hash(nonce, content)[:16]
    return nonce


def _newest(rubric: str, constraints: str) -> Prompt:
    return load(rubric, constraints=constraints)


def _hidden(char: str) -> bool:
    if char.isascii():
        return True
    # Cc control, Cf format (bidi, zero width, tags), Cs surrogates, Co private use, Zl and Zp line separators.
    return unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"} or bool(IGNORABLE.match(char))


def _fill(template: str, values: Mapping[str, str]) -> str:
    # One pass: what a value holds is never looked at again, so a transcript can't smuggle in a placeholder.
    return _PLACEHOLDER.sub(lambda match: _value(match[1], values), template)


def _value(name: str, values: Mapping[str, str]) -> str:
    try:
        return values[name]
    except KeyError:
        raise ConfigError(
            f"the prompt asks for {{{{{name}}}}}, but there is only: {', '.join(sorted(values))}"
        ) from None


def _shown(examples: tuple[Example, ...]) -> str:
    return "\n\n".join(
        f"Example {number}: {example.title}\n{example.fields.strip()}\nAnswer:\n{example.answer.strip()}"
        for number, example in enumerate(examples, 1)
    )


def _hash(*parts: str) -> str:
    # Length prefixes keep parts apart.
    joined = b"".join(len(raw := part.encode("utf-8", "replace")).to_bytes(8, "big") + raw for part in parts)
    return hashlib.blake2b(joined, digest_size=16).hexdigest()
