"""Text for people: what a terminal would have left, with what is hidden made visible."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatapp.plain import excerpt, plain, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("see \x1b]8;;https://e.org\x1b\\here\x1b]8;;\x1b\\.", "see here."),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]0;never closed\nnext", "\nnext"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("\x1b[2J\x1b[1;1Hhome\x1b(B", "home"),
        ("10 %\r50 %\r100 %\r\ndone\r\n", "100 %\ndone\n"),
        ("50 %\r\x1b[2K", "50 %"),
        ("_\bN\bNAME", "NAME"),
        ("\b\ba", "a"),
        ("ding\x07", "ding"),
        ("cut \x1b[", "cut "),
        ("cut \x1b", "cut "),
        ("tab\tand\nline", "tab\tand\nline"),
        ("nul\x00", "nul\u27e8U+0000\u27e9"),
        ("a\u202eb", "a\u27e8U+202E\u27e9b"),
    ],
)
def test_it_leaves_what_a_terminal_would(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pay\u200dpal", "pay\u27e8U+200D\u27e9pal"),
        ("\U0001f468\u200d\U0001f469", "\U0001f468\u200d\U0001f469"),
        ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
        ("a\U000e0041", "a\u27e8U+E0041\u27e9"),
        ("\x1b[31m", "\u27e8U+001B\u27e9[31m"),
        ("so\u00adft", "so\u27e8U+00AD\u27e9ft"),
    ],
)
def test_what_is_hidden_becomes_visible_and_what_scripts_need_stays(text: str, shown: str) -> None:
    assert visible(text) == shown


PIECES = ["\x1b", "[", "]", "8;;", "\\", "\x07", "\x08", "\r", "\n", "\x9b", "\x90", "\x9c", "31", "m", "P", "\u202e"]


@settings(deadline=None)
@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join)))
def test_it_never_raises_and_leaves_no_control_character(text: str) -> None:
    shown = plain(text)
    assert not any(unicodedata.category(character) == "Cc" and character not in "\t\n" for character in shown)
    assert "\u202e" not in shown


@pytest.mark.parametrize("piece", ["\x1b]", "\x1b[", "\x90", "\b", "a\r", "\x1bP\n", "\u200d", "\x1b[0;"])
def test_it_takes_time_in_proportion_to_the_text(piece: str) -> None:
    began = time.perf_counter()
    plain(piece * 200_000)
    assert time.perf_counter() - began < 5


def test_an_excerpt_has_so_many_lines_and_characters() -> None:
    assert excerpt("a\nb\nc", 100, 2) == "a\nb"
    assert excerpt("a\nb", 100, 2) == "a\nb"
    assert excerpt("abc", 2, 5) == "ab"
    assert excerpt("abc", 2) == "ab"
