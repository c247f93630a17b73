"""Markdown to safe HTML: whole texts, and texts that are still being written.

What comes out is ours to insert into a page: raw HTML is off in the parser, and an allow-list drops every attribute
that a script, a style or the page's own swapping could act on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import Any, Literal

import nh3
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from linkify_it import LinkifyIt
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.tasklists import tasklists_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES
from pygments.util import ClassNotFound

from chatapp.mathtext import math_plugin

HIGHLIGHT_MAX = 30_000
CACHED_MAX = 32_000
# An open block is rendered at each delta up to the first size, at each eighth more up to the second, then doubled.
OPEN_BLOCK_EASY = 2_000
OPEN_BLOCK_MAX = 12_000
# A code block with more lines is folded; the style sheet shows as many as fit into its folded height.
FOLD_ABOVE = 40

_TAGS = set(
    ["a", "blockquote", "br", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p"]
    + ["pre", "s", "section", "span", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul"]
)
_ATTRIBUTES: dict[str, set[str]] = {
    "*": set(), "a": {"href"}, "ol": {"start"}, "pre": {"data-lang"},
    "sup": {"data-note"}, "li": {"data-note"}, "span": {"data-note"},
}  # fmt: skip
_CLASSES = {
    "span": {name for name in STANDARD_TYPES.values() if name} | {"box"},
    "td": {"right", "center"},
    "th": {"right", "center"},
    "li": {"task"},
    "section": {"footnotes"},
    "code": {"math"},
    "div": {"math"},
}
# Each block finds its own direction: right-to-left and left-to-right texts stand beside each other.
_SET = {tag: {"dir": "auto"} for tag in ("p", "ul", "ol", "blockquote", "table", "h1", "h2", "h3", "h4", "h5", "h6")}
_SET["a"] = {"target": "_blank"}
_ALIGN = re.compile(r"text-align:\s*(right|center)")
_PRE = re.compile(r'<pre( data-lang="[^"<>]*")?>(.*?)</pre>', re.DOTALL)
_NOTE_REF = re.compile(r'<sup data-note="(\d+)-(\d+)">(\[\d+\])</sup>')
_NOTE = re.compile(r'<li data-note="(\d+)">')
_NOTE_BACK = re.compile(r'<span data-note="(\d+)-(\d+)">\u21a9</span>')
_ENDLESS = re.compile(r"\S{1000}")
_formatter = HtmlFormatter(nowrap=True)


def _code(source: str, info: str) -> str:
    language = _language(info)
    body = escape(source, quote=False)
    if language and len(source) <= HIGHLIGHT_MAX:
        with suppress(ClassNotFound):
            body = highlight(source, get_lexer_by_name(language, stripnl=False, ensurenl=False), _formatter)
    return f"{_open_pre(language)}<code>{body}</code></pre>\n"


def _language(info: str) -> str:
    """The first word of a fence's info string, of harmless characters only."""
    words = info.split(maxsplit=1)
    return re.sub(r"[^\w+#.-]", "", words[0])[:30] if words else ""


def _open_pre(language: str) -> str:
    return f'<pre data-lang="{escape(language)}">' if language else "<pre>"


def _fence(tokens: Sequence[Token], index: int, *_rest: Any) -> str:
    return _code(tokens[index].content, tokens[index].info)


def _image(tokens: Sequence[Token], index: int, *_rest: Any) -> str:
    """A link in place of the picture: loading it would tell its server who reads."""
    token = tokens[index]
    source = str(token.attrGet("src") or "")
    return f'<a href="{escape(source)}">{escape(token.content or source)}</a>'


def _checkbox(tokens: Sequence[Token], index: int, *_rest: Any) -> str:
    """The task list plugin's checkbox, as a character: a form field in a text would need a label and could be sent."""
    mark = "\u2611" if "checked" in tokens[index].content else "\u2610"
    return f'<span class="box">{mark}</span> '


def _list_item(tokens: Sequence[Token], index: int, *_rest: Any) -> str:
    return '<li class="task">' if tokens[index].attrGet("class") else "<li>"


def _cell(tokens: Sequence[Token], index: int, *_rest: Any) -> str:
    token = tokens[index]
    align = _ALIGN.search(str(token.attrGet("style") or ""))
    return f'<{token.tag} class="{align[1]}">' if align else f"<{token.tag}>"


def _note_place(token: Token) -> str:
    """Which note, and which of the references to it."""
    return f"{token.meta['id'] + 1}-{token.meta.get('subId', 0)}"


def _footnote_ref(tokens: Sequence[Token], index: int, *_rest: Any) -> str:
    return f'<sup data-note="{_note_place(tokens[index])}">[{tokens[index].meta["id"] + 1}]</sup>'


def _footnote_open(tokens: Sequence[Token], index: int, *_rest: Any) -> str:
    return f'<li data-note="{tokens[index].meta["id"] + 1}">'


def _footnote_anchor(tokens: Sequence[Token], index: int, *_rest: Any) -> str:
    return f' <span data-note="{_note_place(tokens[index])}">\u21a9</span>'


class _Links(LinkifyIt):  # type: ignore[misc]
    """Looks for no addresses in endless words: what looks like many of them costs the square of its length."""

    def pretest(self, text: str) -> bool:
        return not _ENDLESS.search(text) and bool(super().pretest(text))


def _parser(footnotes: bool) -> MarkdownIt:
    md = MarkdownIt("commonmark", {"html": False, "linkify": True})
    md.linkify = _Links()
    md.enable(["table", "strikethrough", "linkify"])
    tasklists_plugin(md)
    math_plugin(md, growing=not footnotes)
    rules: dict[str, Any] = {
        "fence": _fence,
        "code_block": lambda tokens, index, *_rest: _code(tokens[index].content, ""),
        "image": _image,
        "html_inline": _checkbox,
        "list_item_open": _list_item,
        "th_open": _cell,
        "td_open": _cell,
    }
    if footnotes:
        footnote_plugin(md)
        rules |= {
            "footnote_ref": _footnote_ref,
            "footnote_block_open": lambda *_all: '<section class="footnotes"><ol>',
            "footnote_block_close": lambda *_all: "</ol></section>",
            "footnote_open": _footnote_open,
            "footnote_close": lambda *_all: "</li>",
            "footnote_anchor": _footnote_anchor,
        }
    md.renderer.rules.update(rules)  # type: ignore[attr-defined]
    return md


_whole = _parser(footnotes=True)
_growing = _parser(footnotes=False)


def _clean(html: str) -> str:
    safe = nh3.clean(
        html,
        tags=_TAGS,
        clean_content_tags={"script", "style"},
        attributes=_ATTRIBUTES,
        allowed_classes=_CLASSES,
        url_schemes={"http", "https", "mailto"},
        url_relative="deny",
        link_rel="noopener nofollow",
        set_tag_attribute_values=_SET,
    )
    return _framed_tables(_PRE.sub(_framed_code, safe))


# In what was cleaned every `<` is a tag of the allow-list, so what follows touches those tags only.


def _framed_code(match: re.Match[str]) -> str:
    """A code block with its buttons; a long one is folded."""
    count = match[2].removesuffix("</code>").rstrip("\n").count("\n") + 1
    pre = f'<pre tabindex="0"{match[1] or ""}>{match[2]}</pre>'
    copy = f'<button type="button" class="copy">{escape(_("Copy"))}</button>'
    if count <= FOLD_ABOVE:
        return f'<div class="code">{copy}{pre}</div>'
    more, less = escape(_("Show all %d lines") % count), escape(_("Fold"))
    words = f'<span class="more">{more}</span><span class="less">{less}</span>'
    return f'<div class="code long">{copy}{pre}<button type="button" class="fold">{words}</button></div>'


def _framed_tables(html: str) -> str:
    """Each table in a frame that scrolls by itself and by keyboard."""
    frame = f'<div class="table" role="group" tabindex="0" aria-label="{escape(_("Table"))}">'
    return html.replace("<table", f"{frame}<table").replace("</table>", "</table></div>")


def _linked_notes(html: str, block_id: str) -> str:
    """Footnotes and the places that refer to them link to each other, under names of this block's own."""
    if "data-note" not in html:
        return html
    name = "fn-" + re.sub(r"[^\w-]", "", block_id, flags=re.ASCII)
    html = _NOTE_REF.sub(rf'<sup><a id="{name}-\1-from-\2" href="#{name}-\1" role="doc-noteref">\3</a></sup>', html)
    html = _NOTE.sub(rf'<li id="{name}-\1" tabindex="-1">', html)
    back = escape(_("Back to the text"))
    link = rf'<a href="#{name}-\1-from-\2" role="doc-backlink" aria-label="{back}">\u21a9</a>'
    return _NOTE_BACK.sub(link.replace(r"\u21a9", "\u21a9"), html)


@lru_cache(maxsize=512)
def _cached(text: str, language: str) -> str:
    return _clean(_whole.render(text))


def render(text: str, block_id: str = "") -> str:
    """A finished text. Cached: every viewer and every reload shows the same blocks."""
    if len(text) > CACHED_MAX:
        html = _clean(_whole.render(text))
    else:
        html = _cached(text, get_language() or "")
    return _linked_notes(html, block_id)


def bare(text: str) -> str:
    """A finished text as it is pasted elsewhere: without our buttons, our classes and links within the page."""
    return nh3.clean(
        render(text),
        tags=_TAGS,
        clean_content_tags={"button"},
        attributes={"a": {"href"}, "ol": {"start"}},
        url_schemes={"http", "https", "mailto"},
        url_relative="deny",
        link_rel=None,
    )


@dataclass(frozen=True)
class Op:
    """A change to the HTML of a growing text.

    `freeze` puts HTML before the open part for good, `open` replaces the open part, `tail` appends to the open part,
    `line` appends to the code of the open part.
    """

    kind: Literal["freeze", "open", "tail", "line"]
    html: str


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_CLOSE = {"`": re.compile(r" {0,3}(`{3,})[ \t]*"), "~": re.compile(r" {0,3}(~{3,})[ \t]*")}


class GrowingText:
    """Renders a text while it comes: finished blocks once, inside an open code fence only the new lines."""

    def __init__(self) -> None:
        self._rest = ""  # what is not frozen yet
        self._shown = 0  # characters of it that the page has
        self._rendered = 0  # its length when the open part was last rendered
        self._fence = ""  # the mark that opened the fence we are in

    def feed(self, text: str) -> list[Op]:
        self._rest += text.replace("\r\n", "\n").replace("\r", "\n")
        ops: list[Op] = []
        while self._feed_fence(ops) if self._fence else self._feed_blocks(ops):
            pass
        return ops

    def _feed_fence(self, ops: list[Op]) -> bool:
        """Appends whole lines; True when the fence closed and something follows it."""
        start = self._shown
        while (end := self._rest.find("\n", self._shown)) >= 0:
            close = _CLOSE[self._fence[0]].fullmatch(self._rest, self._shown, end)
            if close and len(close[1]) >= len(self._fence):
                block, self._rest = self._rest[: end + 1], self._rest[end + 1 :]
                self._shown, self._rendered, self._fence = 0, 0, ""
                ops += [Op("freeze", _clean(_growing.render(block))), Op("open", "")]
                return bool(self._rest)
            self._shown = end + 1
        if self._shown > start:
            ops.append(Op("line", escape(self._rest[start : self._shown], quote=False)))
        return False

    def _feed_blocks(self, ops: list[Op]) -> bool:
        """Freezes all blocks but the last and renders that one; True when it is a fence that has just opened."""
        if self._too_dear():
            ops.append(Op("tail", escape(self._rest[self._shown :], quote=False)))
            self._shown = len(self._rest)
            return False
        tokens = _growing.parse(self._rest)
        starts = [i for i, token in enumerate(tokens) if token.level == 0 and token.map and token.nesting >= 0]
        if len(starts) > 1:
            last = tokens[starts[-1]]
            ops.append(Op("freeze", _render_tokens(tokens[: starts[-1]])))
            tokens = tokens[starts[-1] :]
            self._rest = self._rest[_line_offset(self._rest, last.map[0] if last.map else 0) :]
        self._shown = self._rendered = len(self._rest)
        first, newline, _body = self._rest.partition("\n")
        mark = _FENCE.match(first)
        if mark and newline and not (mark[1][0] == "`" and "`" in first[mark.end() :]):
            self._fence, self._shown = mark[1], len(first) + 1
            pre = _open_pre(_language(first[mark.end() :]))
            ops.append(Op("open", f'<div class="code">{pre}<code></code></pre></div>'))
            return True
        ops.append(Op("open", _render_tokens(tokens)))
        return False

    def _too_dear(self) -> bool:
        """Rendering one long list at every delta would cost its square; meanwhile the raw text stands in."""
        grown = len(self._rest) - self._rendered
        if self._rendered <= OPEN_BLOCK_EASY:
            return False
        return grown * (8 if self._rendered <= OPEN_BLOCK_MAX else 1) < self._rendered


def _render_tokens(tokens: list[Token]) -> str:
    return _clean(_growing.renderer.render(tokens, _growing.options, {}))


def _line_offset(text: str, line: int) -> int:
    offset = 0
    for _number in range(line):
        offset = text.index("\n", offset) + 1
    return offset
