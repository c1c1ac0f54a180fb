"""The pages in a real browser: nothing complains or is wider than its window, and every link leads somewhere."""

import socket
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from monitor.store import Store
from monitor.web import create_app
from monitor.web.text import session_path
from tests.services.devtools import Page, open_page
from tests.unit.store.builders import policy
from tests.unit.web.judged import ALL, decided, golden, judged, spreading

HOSTILE = "\u202eevil\0" + "W" * 500 + '"><script>alert(1)</script> \U000e0041'
LOST = """[...document.querySelectorAll('a[href^="#"]')].map(link => link.getAttribute('href'))
    .filter(target => !document.getElementById(target.slice(1)))"""
TWICE = """[...document.querySelectorAll('[id]')].map(item => item.id)
    .filter((id, place, all) => all.indexOf(id) !== place)"""
LEVELS = "[...document.querySelectorAll('h1, h2, h3, h4')].map(item => Number(item.tagName[1]))"
# A link that shows no words has no name for those who hear the page.
NAMELESS = """[...document.querySelectorAll('a, button, select, input, summary')]
    .filter(item => !(item.textContent.trim() || item.getAttribute('aria-label') || item.labels?.length)).length"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a store with a session of each kind."""
    store = Store.open(f"sqlite:///{tmp_path_factory.mktemp('site')}/store.sqlite", rubrics=ALL)
    store.record([policy(rubrics=tuple(ALL)), *spreading()])
    by_name = dict(golden())
    chats = {name: by_name[f"golden-{rubric}-{name}"] for rubric, name in NAMED.items()}
    chats["long"] = [_turn(place, f"Item {place} costs {place} euros.") for place in range(500)]
    chats["hostile"] = [_turn(place, HOSTILE * (1 + 9 * (place % 2))) for place in range(4)]
    for name, turns in chats.items():
        chosen = decided(name, turns)
        store.record([chosen, *judged(chosen)])
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(store), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    store.close()


def _turn(place: int, text: str) -> dict[str, Any]:
    said = {"role": ("user", "assistant")[place % 2], "text": text if place % 2 else f"No, {text}"}
    return said | ({"evidence": [{"id": "x" * 200, "text": text}]} if place % 2 else {})


@pytest.fixture(scope="module")
def page(chromium: Path) -> Iterator[Page]:
    with open_page() as opened:
        yield opened


NAMED = {
    "correction": "courier-street",
    "refusal": "refund-once",
    "hallucination": "two-facts",
    "conversation": "kettle-watts",
}
ADDRESSES = ["/", *(session_path("t", name, "e0") for name in (*NAMED.values(), "spread", "hostile", "long"))]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_page_fits_its_window_and_is_sound(site: str, page: Page, address: str) -> None:
    for width, dark in ((360, True), (1400, False)):
        page.open(site + address, width=width, dark=dark)
        assert page.problems == []
        assert page.run("document.documentElement.scrollWidth") == width
    assert page.run(LOST) == []
    assert page.run(TWICE) == []
    assert page.run(NAMELESS) == 0
    levels = page.run(LEVELS)
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_marks_and_findings_lead_to_each_other_by_keyboard(site: str, page: Page) -> None:
    page.open(site + session_path("t", "refund-once", "e0"))
    assert page.run("document.querySelectorAll('.transcript mark').length") >= 4
    page.run("document.querySelector('#turn-3 .text .ref').focus()")
    page.press("Enter")
    finding = page.run("location.hash.slice(1)")
    assert page.run(f"document.getElementById('{finding}').classList.contains('finding')")
    page.run(f"document.querySelector('#{finding} .quotes a[href^=\"#q\"]').focus()")
    page.press("Enter")
    assert page.run("document.querySelector(':target').closest('mark') !== null")


def test_a_folded_turn_opens_when_a_link_leads_to_it(site: str, page: Page) -> None:
    page.open(site + session_path("t", "long", "e0"))
    assert page.run("document.querySelectorAll('.fold').length") >= 1
    assert page.run("document.querySelector('.transcript > .turns').children.length") < 120
    page.run("location.hash = '#turn-250'")
    assert page.run("document.getElementById('turn-250').checkVisibility()")


def test_nothing_hidden_is_left_in_what_is_shown(site: str, page: Page) -> None:
    page.open(site + session_path("t", "hostile", "e0"))
    shown = page.run("document.body.innerText")
    assert "<script>alert(1)</script>" in shown
    assert "U+202E" in shown
    assert not set("\u202e\0\U000e0041") & set(shown)
