"""Text for people: terminal output made plain, hidden characters made visible, long text cut."""

from __future__ import annotations

import re

# Each branch ends before the next escape or the line's end, so no text is looked at twice.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # colours, cursor moves, erasing
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # titles, links, other strings
    r"|\x1b[ -/]*[0-~]?"
)
_TERMINAL = re.compile("[\x07\x08\r\x1b\x90\x98\x9b-\x9f]")
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_JOINERS = "\u200c\u200d"
# From here on scripts and emoji need joiners; below, a joiner only hides that two words differ.
_JOINED_FROM = "\u0590"


def plain(text: str) -> str:
    """What a terminal would have left on its screen, line by line, with the rest of what is hidden made visible."""
    if _TERMINAL.search(text):
        text = _SEQUENCE.sub("", text).replace("\x07", "").replace("\x9c", "")
        text = "\n".join(_last_state(line) for line in text.split("\n"))
    return visible(text)


def _last_state(line: str) -> str:
    """A progress bar writes its line again and again: the last state that is not empty."""
    line = next((state for state in reversed(line.split("\r")) if state), "")
    if "\b" not in line:
        return line
    kept: list[str] = []
    for character in line:
        if character != "\b":
            kept.append(character)
        elif kept:
            kept.pop()
    return "".join(kept)


def visible(text: str) -> str:
    """Control and direction characters as their code points, so that nothing looks like what it is not."""
    return _HIDDEN.sub(_code_point, text)


def _code_point(match: re.Match[str]) -> str:
    at = match.start()
    if match[0] in _JOINERS and _joins(match.string[at - 1 : at]) and _joins(match.string[at + 1 : at + 2]):
        return match[0]
    return f"\u27e8U+{ord(match[0]):04X}\u27e9"


def _joins(neighbour: str) -> bool:
    return neighbour >= _JOINED_FROM and not _HIDDEN.match(neighbour)


def excerpt(text: str, characters: int, lines: int | None = None) -> str:
    """The beginning, of at most so many characters and lines."""
    if lines is not None:
        text = "\n".join(text[: characters + 1].split("\n", lines)[:lines])
    return text[:characters]
