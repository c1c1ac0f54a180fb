"""Hidden characters are shown, quotes are found, ids survive addresses."""

import html
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from monitor.web.text import session_ids, session_path, visible, visible_markup

ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
HIDDEN = [
    "\0",
    "\x1b",
    "\x7f",
    "\x85",
    "\u202e",
    "\u2066",
    "\u200b",
    "\u200f",
    "\ufeff",
    "\U000e0041",
    "\u2028",
    "\U000e0101",
]
HIDDEN += ["\ufe01", "\u3164"]


@pytest.mark.parametrize("char", HIDDEN)
def test_hidden_characters_are_shown(char: str) -> None:
    assert char not in visible(f"a{char}b")
    assert char not in visible_markup(f"a{char}b")


def test_nul_and_delete_have_pictures() -> None:
    assert visible("a\0b\x7f") == "a\u2400b\u2421"
    assert visible("\u202egnp.exe") == "\u27e8U+202E\u27e9gnp.exe"


def test_ordinary_text_stays() -> None:
    text = "Zażółć gęślą jaźń\n\t한국어 中文 👩\u200d👧 \u2764\ufe0f"
    assert visible(text) == text


@given(st.text())
def test_no_control_and_no_direction_mark_is_left(text: str) -> None:
    for char in visible(text):
        assert unicodedata.category(char) != "Cc" or char in "\t\n"
        assert unicodedata.bidirectional(char) not in {
            "LRE",
            "RLE",
            "LRO",
            "RLO",
            "PDF",
            "LRI",
            "RLI",
            "FSI",
            "PDI",
        }


@given(st.text())
def test_markup_says_the_same_and_escapes_everything(text: str) -> None:
    markup = visible_markup(text)
    bare = re.sub(r'<span class="hidden-char" title="[^"<>]*">([^<]*)</span>', r"\1", markup)
    assert "<" not in bare
    assert ">" not in bare
    assert html.unescape(bare) == visible(text) or "&" in text


@given(ids, ids, ids)
@example("default", "a/b", "..")
@example(".", "a?b#c", "100%2F")
@example("t", "a\\b", "\x00")
def test_ids_survive_the_address(tenant: str, session_id: str, segment: str) -> None:
    path = session_path(tenant, session_id, segment)
    assert path.isascii()
    if path.startswith("/sessions/"):
        assert session_ids(path.encode()) == (tenant, session_id, segment)
    else:
        assert {".", ".."} & {tenant, session_id, segment}


@pytest.mark.parametrize(
    "path", ["/sessions/", "/sessions/a/b", "/sessions/a/b/c/d", "/sessions/a//c", "/sessions/%FF"]
)
def test_addresses_that_name_no_session(path: str) -> None:
    assert session_ids(path.encode()) is None
