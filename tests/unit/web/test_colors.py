"""Text can be read on its ground, in both color schemes: a contrast of 4.5 at least (WCAG 2.2, 1.4.3)."""

import re
from importlib.resources import files

import pytest

SHEET = (files("monitor.web") / "static" / "style.css").read_text(encoding="utf-8")
PAIRS = [
    *[("ink", ground) for ground in ("paper", "card", "user", "mark", "bad-bg", "good-bg", "warn-bg", "info-bg")],
    *[("soft", ground) for ground in ("paper", "card", "user")],
    *[("accent", ground) for ground in ("paper", "card", "user")],
    *[(tone, ground) for tone in ("bad", "good", "warn", "info") for ground in (f"{tone}-bg", "card", "user")],
    ("paper", "accent"),
]


def schemes() -> dict[str, dict[str, str]]:
    blocks = re.findall(r":root \{(.*?)\}", SHEET, re.DOTALL)
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w+)", block)) for block in blocks)
    return {"light": light, "dark": light | dark}


def luminance(color: str) -> float:
    digits = color[1:] if len(color) == 7 else "".join(digit * 2 for digit in color[1:])
    channels = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_measure() -> None:
    assert contrast("#000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_text_can_be_read(scheme: str, text: str, ground: str) -> None:
    colors = schemes()[scheme]
    assert contrast(colors[text], colors[ground]) >= 4.5


def test_no_rule_has_a_color_of_its_own_for_text() -> None:
    rules = SHEET[SHEET.index("* { box-sizing") :]
    assert re.findall(r"(?<![-\w])(?:color|fill|background): ?#\w+", rules) == []
