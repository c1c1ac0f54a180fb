"""Hostile text made fit to be looked at: what is invisible, or turns text around, becomes visible. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Final
from urllib.parse import quote, unquote

from markupsafe import Markup, escape

# Control characters but tab and newline; marks that turn the direction of text; characters of no width; the "tag"
# block and variation selectors, in which instructions to a model can hide. The zero-width joiners and the selector
# of emoji (U+FE0F) stay: scripts and emoji need them.
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028\u2029"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
_DELETE: Final = 0x7F
_DELETE_PICTURE: Final = "\u2421"
_C0_END: Final = 0x20
_CONTROL_PICTURES: Final = 0x2400


def visible(text: object) -> str:
    """Show hidden characters: controls as their pictures (NUL is U+2400), others as their code point."""
    return _HIDDEN.sub(lambda found: _picture(found[0]), str(text).replace("\r\n", "\n"))


def visible_markup(text: object) -> Markup:
    """Show hidden characters as `visible` does, set apart and with their names; everything else is escaped."""
    plain = str(text).replace("\r\n", "\n")
    parts, end = [], 0
    for found in _HIDDEN.finditer(plain):
        name = unicodedata.name(found[0], "CONTROL CHARACTER")
        mark = Markup('<span class="hidden-char" title="{}">{}</span>')
        parts += [escape(plain[end : found.start()]), mark.format(name, _picture(found[0]))]
        end = found.end()
    return Markup("").join([*parts, escape(plain[end:])])


def attribute(text: object) -> Markup:
    """Escape a value that a form sends back as it is: hidden characters stay, but only as references."""
    return Markup(_HIDDEN.sub(lambda found: f"&#x{ord(found[0]):x};", escape(text)))  # noqa: S704 - escaped just here


def session_path(tenant: str, session_id: str, segment: str) -> str:
    """Give the address of a session's page, whatever its ids hold."""
    ids = (tenant, session_id, segment)
    if any(part in {"", ".", ".."} for part in ids):
        # A browser would take such a part out of a path, escaped or not.
        names = zip(("tenant", "session_id", "segment"), ids, strict=True)
        return "/session?" + "&".join(f"{name}={quote(part, safe='')}" for name, part in names)
    return "/sessions/" + "/".join(quote(part, safe="") for part in ids)


def session_ids(raw_path: bytes) -> tuple[str, str, str] | None:
    """Read the ids from a raw path (`/sessions/...`, still escaped, since ids may hold slashes), or None."""
    parts = raw_path.decode("ascii", "replace").partition("?")[0].split("/sessions/", 1)[-1].split("/")
    if len(parts) != 3 or not all(parts):  # noqa: PLR2004 - tenant, session, segment
        return None
    tenant, session_id, segment = (unquote(part, errors="replace") for part in parts)
    return tenant, session_id, segment


def _picture(char: str) -> str:
    code = ord(char)
    if code < _C0_END:
        return chr(_CONTROL_PICTURES + code)
    return _DELETE_PICTURE if code == _DELETE else f"\u27e8U+{code:04X}\u27e9"
