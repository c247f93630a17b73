"""Mathematics in Markdown, kept as it was written: no emphasis inside, every backslash in its place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

# Longer than this no formula in a line is; so far only its end is looked for.
INLINE_MAX = 2000

_PAIRS = {"$$": "$$", "$": "$", "\\(": "\\)", "\\[": "\\]"}
_OPENS_BLOCK = re.compile(r"(\$\$|\\\[)|\\begin\{((?:equation|multline|gather|align|alignat|flalign)\*?)\}")


def math_plugin(md: MarkdownIt, *, growing: bool) -> None:
    """`growing`: a block whose end has not come yet is one already."""
    md.inline.ruler.before("escape", "math_inline", _inline)
    interrupts: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}

    def block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        return _block(state, start, end, silent, growing)

    md.block.ruler.before("fence", "math_block", block, interrupts)
    rules: dict[str, Any] = {"math_inline": _render_inline, "math_block": _render_block}
    md.renderer.rules.update(rules)  # type: ignore[attr-defined]


def _inline(state: StateInline, silent: bool) -> bool:
    source, start = state.src, state.pos
    opening = next((mark for mark in _PAIRS if source.startswith(mark, start)), None)
    if opening is None:
        return False
    end = _inline_end(source, start, opening)
    if end is None:
        return False
    if not silent:
        state.push("math_inline", "math", 0).content = source[start:end]
    state.pos = end
    return True


def _inline_end(source: str, start: int, opening: str) -> int | None:
    """Behind the closing mark. A lone dollar is stricter, since it may be money."""
    closing, begin = _PAIRS[opening], start + len(opening)
    at = source.find(closing, begin, begin + INLINE_MAX)
    while at > 0 and _escaped(source, at, begin):
        at = source.find(closing, at + 1, begin + INLINE_MAX)
    if at <= begin or not source[begin:at].strip():
        return None
    end = at + len(closing)
    if opening == "$":
        money = source[start - 1 : start].isdigit() or source[end : end + 1].isdigit()
        if money or source[begin].isspace() or source[at - 1].isspace():
            return None
    return end


def _escaped(source: str, at: int, begin: int) -> bool:
    before = source[begin:at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _block(state: StateBlock, start: int, end: int, silent: bool, growing: bool) -> bool:
    if state.is_code_block(start):
        return False
    first = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]]
    opened = _OPENS_BLOCK.match(first)
    if opened is None:
        return False
    closing = _PAIRS[opened[1]] if opened[1] else f"\\end{{{opened[2]}}}"
    last = _block_end(state, start, end, first[opened.end() :], closing, growing)
    if last is None:
        return False
    if not silent:
        token = state.push("math_block", "math", 0)
        token.content = state.getLines(start, last + 1, state.blkIndent, False).strip()
        token.block, token.map = True, [start, last + 1]
    state.line = last + 1
    return True


def _block_end(state: StateBlock, start: int, end: int, first: str, closing: str, growing: bool) -> int | None:
    """The line that ends with the closing mark; where text is still to come, the last one."""
    if closing in first:
        return start if first.rstrip().endswith(closing) else None
    # Up to where such an end was looked for in vain: many marks without one cost no more than their text.
    missing: dict[str, int] = state.env.setdefault("math_missing", {})
    if start < missing.get(closing, 0):
        return None
    for line in range(start + 1, end):
        text = state.src[state.bMarks[line] : state.eMarks[line]].rstrip()
        if text.endswith(closing):
            return line
        if not text or state.sCount[line] < state.blkIndent:
            missing[closing] = line
            return None
    if growing:
        return end - 1
    missing[closing] = end
    return None


def _render_inline(tokens: Sequence[Token], index: int, *_rest: Any) -> str:
    return f'<code class="math">{escape(tokens[index].content, quote=False)}</code>'


def _render_block(tokens: Sequence[Token], index: int, *_rest: Any) -> str:
    return f'<div class="math"><code class="math">{escape(tokens[index].content, quote=False)}</code></div>\n'
