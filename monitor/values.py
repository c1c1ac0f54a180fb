"""Values in chat text: times, dates, numbers and words, in a form in which two wordings can be compared.

`scan("half past 11 in the morning")` and `scan("11:30 am")` give tokens that are the `same`. Pure, cheap, English.
A token is *strong* when its form alone says that it is a value: typed, quoted, or capitalized in a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["time", "date", "number", "word"]


class Token(msgspec.Struct, kw_only=True, frozen=True):
    """One value-like piece of a text, at [start, end).

    `key` is what it says; `detail` what may be left unsaid (am or pm, the month), empty when it is.
    """

    kind: Kind
    key: str
    start: int
    end: int
    detail: str = ""
    strong: bool = False

    @property
    def content(self) -> bool:
        """Whether it carries meaning: anything but a function word or a word of everyday requests."""
        return self.kind != "word" or self.key not in STOP_WORDS


class Value(msgspec.Struct, kw_only=True, frozen=True):
    """Tokens that together name one thing, with the text they were found as."""

    tokens: tuple[Token, ...]
    text: str

    @property
    def kind(self) -> Kind:
        """The kind of its first token; `word` if any is a word."""
        return "word" if any(token.kind == "word" for token in self.tokens) else self.tokens[0].kind


def scan(text: str) -> tuple[Token, ...]:
    """Cut a text into tokens, function words included, in order."""
    return tuple(_tokens(text))


def same(one: Token, other: Token) -> bool:
    """Say whether two tokens may mean the same: 5:15 and 5:15 pm do, 5:15 am and 5:15 pm do not."""
    if one.kind != other.kind or one.key != other.key:
        return False
    return one.detail == other.detail or not one.detail or not other.detail


def holds(tokens: Iterable[Token], wanted: Token) -> bool:
    """Say whether a token, or one that means the same, is among tokens."""
    return any(same(token, wanted) for token in tokens)


def names(tokens: Sequence[Token], value: Value) -> bool:
    """Say whether a text names a value: all of a typed or short proper one, at least half of another's words."""
    wanted = [token for token in value.tokens if token.content] or list(value.tokens)
    found = sum(holds(tokens, token) for token in wanted)
    if len(wanted) < _LONG and all(token.strong for token in wanted):
        return found == len(wanted)
    return found * 2 >= len(wanted)


def group(text: str, tokens: Sequence[Token]) -> tuple[Value, ...]:
    """Join tokens that stand next to each other into values; typed ones stand alone, save a number in a name."""
    values: list[list[Token]] = []
    for token in tokens:
        last = values[-1][-1] if values else None
        if last is not None and _joined(last, token, text[last.end : token.start]):
            values[-1].append(token)
        else:
            values.append([token])
    return tuple(value_of(text, run) for run in values)


def _joined(last: Token, token: Token, between: str) -> bool:
    kinds = {last.kind, token.kind}
    if kinds == {"word"}:
        return _JOINS.fullmatch(between) is not None
    # "591 Redwood Highway # 2235" is one address.
    return kinds == {"word", "number"} and between.strip(" ") in {"", "#"} and last.strong and token.strong


def value_of(text: str, tokens: Sequence[Token]) -> Value:
    """Make one value of tokens of a text."""
    return Value(tokens=tuple(tokens), text=text[tokens[0].start : tokens[-1].end])


_LONG: Final = 3
_JOINS: Final = re.compile(r"[\s'\"&.,-]{0,3}(?:(?:of|the|and|de|at|in|la|y)\s+)?", re.IGNORECASE)

_ONES: Final = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
_NUMBERS: Final = {word: number for number, word in enumerate(_ONES)} | {
    "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90, "hundred": 100,
    "thousand": 1000, "dozen": 12,
}  # fmt: skip
_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINALS: Final = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth",
    "twentieth",
)  # fmt: skip
_ORDINAL_DAYS: Final = (
    {word: day for day, word in enumerate(_ORDINALS, 1)}
    | {f"twenty-{word}": 20 + day for day, word in enumerate(_ORDINALS[:9], 1)}
    | {"thirtieth": 30, "thirty-first": 31}
)

_ORD: Final = rf"(?:twenty[-\s](?:{'|'.join(_ORDINALS[:9])})|thirty[-\s]first|thirtieth|{'|'.join(_ORDINALS)})"
_BELOW_100: Final = (
    rf"(?:(?:{'|'.join(_TENS)})(?:[-\s](?:{'|'.join(_ONES[1:10])}))?"
    rf"|{'|'.join(reversed(_ONES[1:]))})"
)
# What may follow the hour of "at 5": anything but what it could be a number of.
_NO_UNIT: Final = (
    r"(?=\s*(?:$|[,;!?)]|\.(?!\d)|\b(?:and|or|but|please|instead|on|for|in|then|today|tonight|tomorrow|sharp"
    r"|not|because|if|with|is|would|will|works?|sounds?)\b))"
)
_NUM: Final = rf"(?:\d{{1,2}}|{'|'.join(_ONES[1:13])})"
_MERIDIEM: Final = r"(?:[ap]\.?\s?m\b\.?|in\sthe\s(?:morning|afternoon|evening)|at\snight)"
_MONTH: Final = rf"(?:{'|'.join(f'{month}|{month[:3]}' for month in _MONTHS)})\b\.?"
# How the first word of anything typed begins. All other words, most of a text, are tried for nothing else.
_TYPED_START: Final = (
    r"(?:a(?:\s[ht]|pr|ug)|com|d(?:ec|ay)|e(?:ig|le)|f(?:eb|ri|if|iv|ir|ou|or)|hal|j(?:an|u[nl])|las"
    r"|m(?:a[ry]|on|id)|n(?:ov|oon|ex|in)|o(?:ct|ne)|qua|s(?:ep|at|un|ix|ev|ec)|t(?:ue|h[uir]|we|wo|en|od|on|om)"
    r"|wed|yes)"
)
_TOKEN: Final = re.compile(
    rf"""
    (?P<plain>(?!{_TYPED_START})[^\W\d_][\w&]*(?:['\u2019-][\w&]+)*)
  | (?P<clock>\b(?P<hour>\d{{1,2}})(?::|\.(?=\d\d\s*[ap]\.?\s?m\b))(?P<minute>\d{{2}})
      (?::\d{{2}})?(?:\s*(?P<m1>{_MERIDIEM}))?)
  | (?P<spoken>\b(?P<part>half|quarter)\s(?P<side>past|to)\s(?P<h3>{_NUM})\b(?:\s*(?P<m3>{_MERIDIEM}))?)
  | (?P<hours>\b(?P<h2>{_NUM})(?:\s*o'clock)?\s*(?P<m2>{_MERIDIEM}))
  | (?P<minutes>\b(?P<m5>five|ten|twenty|twenty-five|[1-5]?\d)(?:\sminutes)?\s(?P<side5>past|to)\s(?P<h5>{_NUM})\b
      (?:\s*(?P<m4>{_MERIDIEM})|(?=\s*(?:$|[,.;!?]|please|instead))))
  | (?P<digits>\b(?P<h6>{_NUM})\s(?P<m6>fifteen|thirty|forty-five)\b(?:\s*(?P<m7>{_MERIDIEM}))?)
  | (?P<athour>(?<=\bat\s)(?P<h7>2[0-4]|1?\d|{"|".join(_ONES[1:13])})\b{_NO_UNIT})
  | (?P<oclock>\b(?P<h4>{_NUM})\s*o'clock)
  | (?P<noon>\b(?:noon|midday|midnight)\b)
  | (?P<iso>\b\d{{4}}-(?P<im>\d{{2}})-(?P<id>\d{{2}})\b)
  | (?P<slash>\b(?P<sm>\d{{1,2}})/(?P<sd>\d{{1,2}})(?:/\d{{2,4}})?\b)
  | (?P<monthday>\b(?P<mm>{_MONTH})\s(?:the\s)?(?P<md>\d{{1,2}})(?:st|nd|rd|th)?\b(?!:))
  | (?P<daymonth>\b(?P<dd>\d{{1,2}})(?:st|nd|rd|th)?\s(?:of\s)?(?P<dm>{_MONTH}))
  | (?P<spelledday>\b(?P<sm1>{_MONTH})\s(?:the\s)?(?P<sd1>{_ORD})\b
      |\b(?P<sd2>{_ORD})\s(?:of\s)?(?P<sm2>{_MONTH})
      |(?<=\bthe\s)(?P<sd3>{_ORD})\b(?=\s*(?:$|[,.;!?]|please|instead|would|works|then)))
  | (?P<ordinal>\b(?P<od>\d{{1,2}})(?:st|nd|rd|th)\b)
  | (?P<weekday>\b(?:(?:next|this|coming|last)\s)?(?P<wd>{"|".join(_DAYS)})\b)
  | (?P<relative>\b(?:day\safter\stomorrow|today|tonight|tomorrow|yesterday)\b)
  | (?P<spelled>\b(?:(?P<big>a|{_BELOW_100})\s(?P<scale>hundred|thousand)(?:\s(?:and\s)?(?P<rest>{_BELOW_100}))?
      |(?P<ten>{"|".join(_TENS)})[-\s](?P<unit>{"|".join(_ONES[1:10])}))\b)
  | (?P<thousands>\b(?P<k>\d+(?:\.\d+)?)k\b)
  | (?P<number>\b\d[\d,]*(?:\.\d+)?\b)
  | (?P<word>[^\W\d_][\w&]*(?:['\u2019-][\w&]+)*|\w+)
    """,
    re.IGNORECASE | re.VERBOSE,
)
# The full stop of "Dr." ends no sentence.
_SENTENCE_START: Final = re.compile(
    r"(?:^|(?<!dr)(?<!mr)(?<!ms)(?<!st)(?<!mrs)[.!?:\n]['\")\]]*)[\s'\"(*-]*$", re.IGNORECASE
)
_QUOTED: Final = re.compile(r"\"([^\"\n]{1,80})\"|(?<!\w)'([^'\n]{2,80})'(?!\w)|\u201c([^\u201d\n]{1,80})\u201d")
_PRONOUN_ONE: Final = re.compile(
    r"(?:this|that|the|another|other|which|no|each|every|right|wrong|new|old|any)\s$", re.IGNORECASE
)


def _tokens(text: str) -> Iterator[Token]:
    quoted = [match.span() for match in _QUOTED.finditer(text)]
    for match in _TOKEN.finditer(text):
        start, end = match.span()
        if match.lastgroup in {"plain", "word"}:
            inside = bool(quoted) and any(left < start and end < right for left, right in quoted)
            yield _word(text, match[0], start, end, inside=inside)
        else:
            kind, key, detail = _typed(match)
            yield Token(kind=kind, key=key, start=start, end=end, detail=detail, strong=True)


def _word(text: str, word: str, start: int, end: int, *, inside: bool) -> Token:
    lower = word.casefold().replace("\u2019", "'")
    if lower in _NUMBERS and not (lower == "one" and _PRONOUN_ONE.search(text[max(0, start - 8) : start])):
        return Token(kind="number", key=str(_NUMBERS[lower]), start=start, end=end, strong=True)
    key = _stem(lower)
    shouted = len(word) > 1 and word.isupper()
    shaped = word[0].isupper() and key not in STOP_WORDS and (shouted or not _starts_sentence(text, start))
    mixed = not word.isalpha() and any(char.isdigit() for char in word)
    return Token(kind="word", key=key, start=start, end=end, strong=inside or shaped or mixed)


def _starts_sentence(text: str, start: int) -> bool:
    # A look back of a few characters is enough.
    return start == 0 or _SENTENCE_START.search(text[max(0, start - 6) : start]) is not None


def _stem(word: str) -> str:
    for ending in ("'s", "s'"):
        word = word.removesuffix(ending)
    return (
        word[:-1] if len(word) > _LONG and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word
    )


def _typed(match: re.Match[str]) -> tuple[Kind, str, str]:
    if match["number"] is not None:
        digits = match["number"].replace(",", "")
        return "number", digits.rstrip("0").rstrip(".") if "." in digits else (digits.lstrip("0") or "0"), ""
    if match["thousands"] is not None:
        return "number", f"{float(match['k']) * 1000:.0f}", ""
    if match["spelled"] is not None:
        return "number", str(_spelled(match)), ""
    return _time(match) or _date(match)


def _spelled(match: re.Match[str]) -> int:
    if match["ten"] is not None:
        return _below_100(match["ten"]) + _below_100(match["unit"])
    scale = _NUMBERS[match["scale"].casefold()]
    big = 1 if match["big"].casefold() == "a" else _below_100(match["big"])
    return big * scale + (_below_100(match["rest"]) if match["rest"] else 0)


def _below_100(words: str) -> int:
    return sum(_NUMBERS[word] for word in re.split(r"[-\s]", words.casefold()))


def _time(match: re.Match[str]) -> tuple[Kind, str, str] | None:
    if match["clock"] is not None:
        return _at(int(match["hour"]), int(match["minute"]), match["m1"])
    if match["digits"] is not None:
        return _at(_count(match["h6"]), _below_100(match["m6"]), match["m7"])
    if match["noon"] is not None:
        return "time", "0:00", "am" if match["noon"].casefold() == "midnight" else "pm"
    return _beside_the_hour(match) or _full_hour(match)


def _beside_the_hour(match: re.Match[str]) -> tuple[Kind, str, str] | None:
    """Read "half past six" and "ten to six"."""
    if match["spoken"] is not None:
        minute = 30 if match["part"].casefold() == "half" else 15
        side, hour, meridiem = match["side"], match["h3"], match["m3"]
    elif match["minutes"] is not None:
        minute = _count(match["m5"])
        side, hour, meridiem = match["side5"], match["h5"], match["m4"]
    else:
        return None
    if side.casefold() == "past":
        return _at(_count(hour), minute, meridiem)
    return _at(_count(hour) - 1, 60 - minute, meridiem)


def _full_hour(match: re.Match[str]) -> tuple[Kind, str, str] | None:
    for whole, hour, meridiem in (("hours", "h2", match["m2"]), ("oclock", "h4", None), ("athour", "h7", None)):
        if match[whole] is not None:
            return _at(_count(match[hour]), 0, meridiem)
    return None


def _at(hour: int, minute: int, meridiem: str | None) -> tuple[Kind, str, str]:
    said = (meridiem or "").casefold()
    half = "" if not said else "am" if "morning" in said or re.match(r"a\W*m", said) else "pm"
    if hour > 12 or (hour == 0 and not said):  # noqa: PLR2004 - hours of the 24-hour clock
        half = "pm" if hour else "am"
    return "time", f"{hour % 12}:{minute:02d}", half


def _date(match: re.Match[str]) -> tuple[Kind, str, str]:
    for month, day in (("im", "id"), ("sm", "sd")):
        if match[month] is not None:
            return "date", str(int(match[day])), str(int(match[month]))
    for month, day in (("mm", "md"), ("dm", "dd")):
        if match[month] is not None:
            return "date", str(int(match[day])), _month(match[month])
    if match["spelledday"] is not None:
        day = match["sd1"] or match["sd2"] or match["sd3"]
        month = match["sm1"] or match["sm2"]
        return "date", str(_ORDINAL_DAYS[re.sub(r"\s", "-", day.casefold())]), _month(month) if month else ""
    if match["od"] is not None:
        return "date", str(int(match["od"])), ""
    if match["wd"] is not None:
        return "date", match["wd"].casefold(), ""
    return "date", " ".join(match["relative"].casefold().split()), ""


def _month(name: str) -> str:
    return str(
        next(
            number for number, month in enumerate(_MONTHS, 1) if month.startswith(name.casefold().rstrip(".")[:3])
        )
    )


def _count(number: str) -> int:
    return int(number) if number.isdigit() else _below_100(number)


# Function words, and the words in which requests and confirmations are made everywhere.
STOP_WORDS: Final = frozenset(
    """
    a about actually after again all almost already alright also am an and another any anything anyway
    apologie apology are as ask at back bad be because been before being best better both but by can
    can't change changed check choose come confirm confirmation confirmed correct correction could
    couldn't definitely desire detail did didn't different do doe does doesn't don't done either else
    enough ever every everything exactly fine following for from get give go going good got great had
    has hasn't have haven't he hello help her here hey hi him his hold how however i i'd i'll i'm i've
    idea if ignore in indeed info information instead into is isn't it it'd it'll it's its just keep
    know last later let let's like little ll look lot made make making matter may maybe me mean meant
    mention might mind mine misspoke mistake more most much must my need needed never new next nice no
    nope nor not nothing now of off oh ok okay old on once one only oop oops or other our out over own
    particular perfect place please prefer preferably previous previously put rather re read real
    realize really right said sam same say scratch second see send set shall she should shouldn't show
    so some something sorry still stop such suppose supposed sure switch take tell than thank thanks
    that that'd that'll that's the their them then there there's these they thing think this those
    though time to too tried true try typo uh um unfortunately update updated upon us use used using ve
    verify versus very vs wa wait want wanted was wasn't way we we'd we'll we're we've well went were what what's
    when where which while who whole why will wish with won't would wouldn't wrong ye yeah yep yes yet
    you you'd you'll you're you've your yours yourself
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
