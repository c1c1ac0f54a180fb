"""Slots: what a value in chat text is said of, so that two values can be told to stand for one thing.

The 4 of "4 guests" fills `count:people`, the Hyatt of "at the Hyatt" `place:at`. Pure, cheap, English.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from monitor.values import STOP_WORDS, Token, Value, same, scan


class Filler(msgspec.Struct, kw_only=True, frozen=True):
    """A value in its slot."""

    slot: str
    tokens: tuple[Token, ...]

    def agrees(self, other: Filler) -> bool:
        """Say whether both may name one thing: "Hyatt" and "Hyatt Hotel" may, "Hyatt Inn" and "Ritz Inn" not."""
        mine, others = self._own(), other._own()
        return _all_in(mine, others) or _all_in(others, mine)

    def fits(self, other: Filler) -> bool:
        """Say whether this may stand in the place of another: a bare number may be a count of anything."""
        if self.slot == other.slot:
            return self.slot != "date" or _one_form(self.tokens[0], other.tokens[0])
        if self.slot in _BARE and other.slot.startswith(_BARE[self.slot]):
            return True
        # "a table for two" is of people; nothing else can be told of a bare number.
        return (self.slot, other.slot) == ("count:people", "number") or (
            other.slot == "name" and self.slot.startswith(_BARE["name"])
        )

    def _own(self) -> tuple[Token, ...]:
        own = tuple(token for token in self.tokens if token.key not in _HEADS and token.key not in STOP_WORDS)
        return own or self.tokens


def fillers(text: str) -> tuple[Filler, ...]:
    """Give the values of a text, each in its slot, in order."""
    return fill(text, scan(text))


def fill(text: str, tokens: tuple[Token, ...]) -> tuple[Filler, ...]:
    """Give the values among the tokens of a text, each in its slot, in order."""
    return tuple(_fillers(text, tokens))


def distinct(value: Value, other: Value) -> tuple[Token, ...]:
    """Give the tokens that set a value apart from another: no heads ("Inn"), nothing that both have."""
    return tuple(
        token
        for token in value.tokens
        if token.content and token.key not in _HEADS and not any(same(token, two) for two in other.tokens)
    )


def class_of(token: Token) -> str | None:
    """Give the closed class of a word: a color, a size, a class of travel; None for any other."""
    return CLASS_WORDS.get(token.key) if token.kind == "word" else None


def _fillers(text: str, tokens: tuple[Token, ...]) -> Iterator[Filler]:
    after = 0
    for at, token in enumerate(tokens):
        if at < after:
            continue
        if token.kind == "word":
            found = tuple(_worded(text, tokens, at))
            after = max((at + len(item.tokens) for item in found), default=0)
            yield from found
        elif token.kind != "number":
            yield Filler(slot=token.kind, tokens=(token,))
        elif not _is_label(text, tokens, at):
            yield Filler(slot=_number_slot(text, tokens, at), tokens=(token,))


def _worded(text: str, tokens: tuple[Token, ...], at: int) -> Iterator[Filler]:
    """Give what a word, or the name that begins with it, fills: a name with a head fills two slots."""
    token = tokens[at]
    if _is_size(text, tokens, at):
        yield Filler(slot="size", tokens=(token,))
    elif _is_title(text, tokens, at):
        yield Filler(slot=f"title:{_TITLES[token.key]}", tokens=tokens[at : at + 2])
    elif (kind := class_of(token)) is not None and len(_proper_run(text, tokens, at)) == 1:
        yield Filler(slot=kind, tokens=(token,))
    elif _is_name(text, tokens, at):
        run = _proper_run(text, tokens, at)
        yield Filler(slot=_name_slot(tokens, at), tokens=run)
        following = tokens[at + len(run) : at + len(run) + 1]
        if following and _heads(text, run[-1], following[0]):
            yield Filler(slot=f"head:{following[0].key}", tokens=run)
    elif _modifies(text, tokens, at):
        yield Filler(slot=f"head:{tokens[at + 1].key}", tokens=(token,))


def _is_label(text: str, tokens: Sequence[Token], at: int) -> bool:
    """Say whether a small number only tells one of a kind from another: "Route 66", "line 2"; not "flight 212"."""
    before = tokens[at - 1] if at else None
    return (
        before is not None
        and before.kind == "word"
        and before.content
        and len(tokens[at].key) < _ID
        and text[before.end : tokens[at].start] == " "
        and not _words_after(text, tokens, at)
    )


def _is_size(text: str, tokens: Sequence[Token], at: int) -> bool:
    """Tell the L of "size L", and an XL anywhere."""
    token = tokens[at]
    after_size = at > 0 and tokens[at - 1].key == "size"
    return token.key in _SIZES or (after_size and token.end - token.start == 1 and text[token.start].isupper())


def _is_title(text: str, tokens: Sequence[Token], at: int) -> bool:
    """Tell "Dr. Morgan" and "dr morgan" from "my doctor's name"."""
    token = tokens[at]
    if token.key not in _TITLES or at + 1 == len(tokens) or not tokens[at + 1].content:
        return False
    following = tokens[at + 1]
    return text[following.start].isupper() or (len(token.key) < _ID and token.end - token.start == len(token.key))


def _is_name(text: str, tokens: Sequence[Token], at: int) -> bool:
    """Tell a name by its capital; at the start of a text by what follows as well."""
    token = tokens[at]
    if token.end - token.start == 1:
        return False
    if token.strong or at or not (text[token.start].isupper() and token.content and len(tokens) > 1):
        return token.strong and token.key not in _NO_NAMES
    following = tokens[1]
    if following.kind != "word":
        return False
    return following.key in _AFTER_NAMES or (following.strong and text[token.end : following.start] == " ")


def _modifies(text: str, tokens: Sequence[Token], at: int) -> bool:
    """Say whether a word tells which one of the thing that the next word names: "oat milk", "north gate"."""
    if at + 1 == len(tokens) or not tokens[at].content or tokens[at].key in _VERBS:
        return False
    return _heads(text, tokens[at], tokens[at + 1])


def _heads(text: str, modifier: Token, head: Token) -> bool:
    plain = head.kind == "word" and head.content and text[head.start].islower()
    return plain and text[modifier.end : head.start] == " "


def _number_slot(text: str, tokens: Sequence[Token], at: int) -> str:
    token = tokens[at]
    if text[max(0, token.start - 1) : token.start] in _SIGNS:
        return "money"
    following = _words_after(text, tokens, at)
    if following and following[0][0] in _MONEY:
        return "money"
    if any(key in _PEOPLE for key, _ in following):
        return "count:people"
    if following:
        many = (key for key, plural in following if plural)
        return f"count:{next(many, following[0][0])}"
    if len(token.key) >= _ID:
        named = next((other.key for other in reversed(tokens[max(0, at - 5) : at]) if other.key in _IDS), None)
        return f"id:{named}" if named else "id"
    return "number"


def _words_after(text: str, tokens: Sequence[Token], at: int) -> list[tuple[str, bool]]:
    """Give the one or two content words after a number, its unit or an adjective; and whether each is a plural."""
    found: list[tuple[str, bool]] = []
    end = tokens[at].end
    for token in tokens[at + 1 : at + 3]:
        if token.kind != "word" or not token.content or text[end : token.start] not in {" ", "-"}:
            break
        found.append((token.key, token.end - token.start > len(token.key)))
        end = token.end
    return found


def _proper_run(text: str, tokens: tuple[Token, ...], at: int) -> tuple[Token, ...]:
    end = at + 1
    for token in tokens[at + 1 :]:
        if not (token.strong and token.kind == "word" and text[tokens[end - 1].end : token.start] in _GAPS):
            break
        end += 1
    return tokens[at:end]


def _name_slot(tokens: Sequence[Token], at: int) -> str:
    for token in reversed(tokens[max(0, at - 3) : at]):
        if token.key in _PLACES:
            return f"place:{token.key}"
        if token.key not in _ARTICLES:
            break
    return "name"


def _all_in(some: Sequence[Token], others: Sequence[Token]) -> bool:
    return all(any(same(one, two) or _hour(one, two) or _hour(two, one) for two in others) for one in some)


def _hour(number: Token, time: Token) -> bool:
    """Say whether a bare number may be the hour of a time: the 5 of "5, please" and 5 pm."""
    return number.kind == "number" and time.kind == "time" and time.key.partition(":")[0] == number.key


def _one_form(one: Token, other: Token) -> bool:
    """Say whether two dates are told in one way: "Thursday" and "March 3rd" may be the same day."""
    return one.key.isdigit() == other.key.isdigit()


_ID: Final = 3
_SIZES: Final = frozenset({"xs", "xl", "xxl"})
_NO_NAMES: Final = frozenset(
    """
    id pin asap am pm eta faq omg lol usd eur
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
_AFTER_NAMES: Final = frozenset({"is", "please", "instead"})
_VERBS: Final = frozenset(
    """
    book booked reserve reserved order ordered play cancel canceled cancelled find found buy rent schedule
    scheduled add added need require pay charge bring call email deliver delivered return includ include including
    noted bought
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
_GAPS: Final = frozenset({" ", "-", " & ", "'", ". ", ", "})
_SIGNS: Final = frozenset({"$", "\u20ac", "\u00a3"})
_ARTICLES: Final = frozenset({"the", "a", "an", "my", "our", "your"})
_PLACES: Final = frozenset(
    """
    to from in at with on for near by under of via about before after until
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
# A bare value may be any of these.
_BARE: Final = {"number": ("count:", "time"), "id": ("id:", "count:"), "name": ("place:", "title:")}
_TITLES: Final = {"dr": "dr", "doctor": "dr", "mr": "mr", "mrs": "mrs", "ms": "ms", "professor": "prof"}
_MONEY: Final = frozenset({"dollar", "buck", "euro", "eur", "usd", "pound", "gbp", "cent", "credit"})
_PEOPLE: Final = frozenset(
    """
    people person guest seat adult passenger traveler attendee diner ticket
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
_IDS: Final = frozenset(
    """
    flight account order booking reservation pin code room zip invoice
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
# Heads of names say what kind of thing it is, not which one.
_HEADS: Final = frozenset(
    """
    hotel inn restaurant cafe bar street avenue road lane drive boulevard highway airport station speaker room
    center theater theatre cinema park dr doctor mr mrs ms professor salon spa clinic bank house
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
_WORDS: Final = {
    "color": "red blue green yellow black white grey gray pink purple orange brown silver gold navy beige",
    "size": "small medium large tall grande venti",
    "class": "economy business luxury pool regular vegetarian vegan decaf iced",
}
# The words of closed classes, with their class.
CLASS_WORDS: Final = {word: kind for kind, words in _WORDS.items() for word in words.split()}
