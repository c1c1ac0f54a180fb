"""What people see of dead letters."""

from __future__ import annotations

import re

import msgspec

from consumers.dead_letters import text
from consumers.dead_letters.desk import Done
from consumers.dead_letters.reading import headers_of
from consumers.dead_letters.remedies import REMEDIES, remedy
from monitor.events import EVENT_ERRORS
from tests.services.parts import checkout
from tests.unit.consumers.dead_letters.records import letter_record
from tests.unit.consumers.dead_letters.test_filters import found

SECRET = "my card is 4111"


def test_a_list_never_holds_what_was_said() -> None:
    letter = found(letter_record(SECRET.encode(), session=("acme", "s1\x1b[2J\n")))
    for shown in (text.table([letter]), msgspec.json.encode(text.line(letter)).decode()):
        assert SECRET not in shown
        assert "no JSON" not in shown  # an error may quote the record
    rows = text.table([letter]).splitlines()
    assert len(rows) == 3
    assert "\x1b" not in rows[1]
    assert rows[2] == "1 dead letters: 1 open, 0 replayed, 0 dropped"
    assert text.table([]) == "0 dead letters: 0 open, 0 replayed, 0 dropped"


def test_a_page_shows_bytes_error_and_remedy_with_control_characters_visible() -> None:
    record = letter_record(b"\x1b[31m" + SECRET.encode() + b"\xff\x00\nnext line")
    shown = text.page(found(record), record.value or b"", headers_of(record))
    assert SECRET in shown
    assert "\x1b" not in shown
    assert "\x00" not in shown
    assert "\\xff" in shown
    assert shown.endswith("\nnext line")
    assert re.search(r"error +no JSON", shown)
    assert remedy("assemble", "undecodable") in shown


def test_the_whole_letter_as_json_gives_its_bytes_back() -> None:
    record = letter_record(b"\xff\x00")
    shown = text.whole(found(record), record.value or b"", headers_of(record))
    assert shown["value_base64"] == "/wA="
    assert (shown["error"], shown["headers"]["stage"]) == ("no JSON", "assemble")
    msgspec.json.encode(shown)


def test_what_was_done_is_summed_up() -> None:
    outcomes = [Done(id="a", to="t/0/1"), Done(id="b", problem="gone")]
    assert text.outcome(outcomes[0], "replayed") == "a  replayed -> t/0/1"
    assert text.outcome(outcomes[1], "replayed") == "b  left as it is: gone"
    assert text.total(outcomes, "replayed", 0) == "1 replayed; 1 left as they are"
    assert text.total([], "dropped", 2).startswith("0 dropped; 2 skipped")


def test_every_reason_of_the_manual_has_a_remedy_and_the_other_way_round() -> None:
    page = (checkout() / "docs" / "operations.md").read_text(encoding="utf-8")
    table = page[page.index("| stage | reasons |") :].split("\n\n")[0]
    named = {
        (stage, reason)
        for stage, reasons in re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)
        for reason in re.findall(r"`(\w+)`", reasons)
    }
    assert named == REMEDIES.keys()
    assert {("assemble", reason) for reason in EVENT_ERRORS} <= named
    assert "drop" in remedy("", "foreign")
