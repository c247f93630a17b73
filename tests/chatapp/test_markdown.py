"""Markdown: what is shown, what is never let through, and texts that are still being written."""

from __future__ import annotations

import re
import time
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatapp import markdown

SAMPLE = """# Trip

Some *text* with `code`, a [link](https://example.org/a?b=1&c=2) and https://example.org/bare.

- one
- two
  - three

- [ ] open
- [x] done

| a | b |
|:--|--:|
| 1 | 2 |

```python
def f(x):

    return "<b>" + x
```

> quoted
> more

~~gone~~

    indented <code>

last line
"""


def replay(pieces: list[str]) -> str:
    """What a page shows after the operations for these pieces."""
    growing, frozen, part = markdown.GrowingText(), "", ""
    for op in (op for piece in pieces for op in growing.feed(piece)):
        if op.kind == "freeze":
            frozen += op.html
        elif op.kind == "open":
            part = op.html
        elif op.kind == "line":
            part = part.replace("</code>", op.html + "</code>")
        else:
            part += op.html
    return frozen + part


def words(html: str) -> str:
    """The text without tags and white space, which blocks rendered apart may set differently."""
    return re.sub(r"\s+", "", re.sub(r"<[^>]+>", "", html))


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("**a**", "<strong>a</strong>"),
        ("~~a~~", "<s>a</s>"),
        ("| a |\n|--:|\n| 1 |", '<td class="right">1</td>'),
        ("- [x] a", '<li class="task"><span class="box">\u2611</span>'),
        ("```python\ndef f(): pass\n```", '<span class="k">def</span>'),
        ("```\na < b\n```", "<code>a &lt; b"),
        ("a[^1]\n\n[^1]: note", '<section class="footnotes">'),
        ("\u05e9", '<p dir="auto">\u05e9'),
        ("see https://example.org", 'href="https://example.org"'),
    ],
)
def test_it_renders(source: str, shown: str) -> None:
    assert shown in markdown.render(source)


def test_it_makes_links_open_apart_and_tell_nothing() -> None:
    html = markdown.render("[a](https://example.org)")
    assert 'target="_blank"' in html
    assert 'rel="noopener nofollow"' in html


def test_it_shows_a_remote_image_as_a_link() -> None:
    html = markdown.render("![cat](https://example.org/cat.png)")
    assert "<img" not in html
    assert 'href="https://example.org/cat.png"' in html


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:alert(1))",
    "[a](data:text/html,x)",
    "[a](/accounts/logout/)",
    "![a](javascript:alert(1))",
    '![" onerror="alert(1)](x)',
    '<div hx-get="/x" hx-trigger="load">a</div>',
    '<b hx-swap-oob="true" id="chat">a</b>',
    "</hx-partial><hx-partial hx-target='#log'>a</hx-partial>",
    "```hx\" onclick=\"x\n<hx-partial hx-target='#log'>\n```",
    "`</hx-partial>`",
    '[a](https://e.org "x\\" onmouseover=\\"alert(1)")',
    "[a](https://e.org/<hx-partial>)",
    "<style>*{display:none}</style>",
    '```"><script>\nx\n```',
    "| a |\n|---|\n| <script>x</script> |",
    "<head><title>x</title></head>",
]
ATTRIBUTE = re.compile(r'\s([a-z-]+)(?:="[^"]*")')
TAG = re.compile(r"<[^>]*>")
ALLOWED = {
    "href",
    "rel",
    "target",
    "class",
    "start",
    "dir",
    "data-lang",
    "type",
    "tabindex",
    "id",
    "role",
    "aria-label",
}


def assert_harmless(html: str) -> None:
    for tag in TAG.findall(html):
        name = re.match(r"</?([a-z0-9]+)", tag)
        assert name, tag
        assert name[1] in markdown._TAGS | {"button"}, tag
        for attribute in ATTRIBUTE.findall(tag):
            assert attribute in ALLOWED, tag
        assert not re.search(r'href="(?!https?:|mailto:|#fn-)', tag), tag
        assert not re.search(r'id="(?!fn-)', tag), tag


@pytest.mark.parametrize("source", HOSTILE)
def test_it_lets_nothing_through_that_acts(source: str) -> None:
    assert_harmless(markdown.render(source))
    for size in (1, 7, 1000):
        assert_harmless(replay([source[i : i + size] for i in range(0, len(source), size)]))


@given(st.text(alphabet="<>hx-partial=\"'`[](){}!#*|&;\n javscript:/", max_size=80))
def test_it_lets_nothing_through_whatever_is_written(source: str) -> None:
    assert_harmless(markdown.render(source))
    assert_harmless(replay([source]))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_it_shows_the_same_text_however_it_comes(sizes: list[int]) -> None:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(SAMPLE[at : at + size])
        at += size
    pieces.append(SAMPLE[at:])
    assert words(replay(pieces)) == words(markdown.render(SAMPLE))


def test_it_sends_only_the_new_lines_of_an_open_fence() -> None:
    growing = markdown.GrowingText()
    growing.feed("```python\n")
    kinds = [[op.kind for op in growing.feed(f"line {n}\n")] for n in range(200)]
    assert kinds == [["line"]] * 200


def test_it_highlights_a_fence_when_it_closes() -> None:
    assert 'class="k"' not in replay(["```python\n", "def f(): pass\n"])
    assert 'class="k"' in replay(["```python\n", "def f(): pass\n", "```\n"])


def test_it_does_not_close_a_fence_at_a_shorter_or_deeper_mark() -> None:
    html = replay(["````\n", "```\n", "     ````\n", "still code\n"])
    assert html.count("<pre") == 1
    assert "still code" in html


def test_it_sends_a_finished_block_once() -> None:
    growing = markdown.GrowingText()
    sent = "".join(op.html for n in range(50) for op in growing.feed(f"paragraph {n}\n\n") if op.kind == "freeze")
    assert sent.count("<p ") == 49


def test_it_shows_every_word_of_a_long_list_without_rendering_it_at_each_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = 0
    real = markdown._clean

    def counted(html: str) -> str:
        nonlocal rendered
        rendered += 1
        return real(html)

    monkeypatch.setattr(markdown, "_clean", counted)
    pieces = [f"- item number {n}\n" for n in range(2000)]
    html = replay(pieces)
    assert rendered < 400
    assert "item number 1999" in html


@pytest.mark.parametrize(
    "source",
    ["$a_1*b*c$", "$$x*y*z$$", r"\(a_b*c*\frac{1}{2}\)", r"\[x_1*y*\]", "$$\na\n=\nb *c* \\\\\nd\n$$",
     "\\[\na_1 \\\\\n*b*\n\\]", "\\begin{align}\na &= *b* \\\\\n\\end{align}"],
)  # fmt: skip
def test_mathematics_stays_as_it_was_written(source: str) -> None:
    for html in (
        markdown.render(f"before\n\n{source}\n\nafter"),
        replay(["before\n\n", source[:4], source[4:], "\n\nafter"]),
    ):
        assert re.findall(r'<code class="math">(.*?)</code>', html, re.DOTALL) == [escape(source, quote=False)]


@pytest.mark.parametrize(
    "source",
    ["$5 and $6", "from $5-$10", "$HOME and $PATH", "10$ and 20$", r"\$a\$", "`$a$`", "$ a $", "costs $5"],
)
def test_money_and_variables_are_no_mathematics(source: str) -> None:
    assert "math" not in markdown.render(source)
    assert "math" not in replay([source])


def test_a_formula_is_one_while_it_is_written() -> None:
    assert "<em>" not in replay(["so:\n$$\n", "a *b* c"])


@pytest.mark.parametrize("piece", ["\\[\n", "$$\n", "\\(", "$a ", "\\begin{align}\n"])
def test_marks_without_an_end_cost_no_more_than_their_text(piece: str) -> None:
    began = time.perf_counter()
    markdown.render(piece * 5_000)
    assert time.perf_counter() - began < 5


def test_footnotes_link_to_each_other_under_names_of_their_block() -> None:
    one, two = (markdown.render("a[^x] b[^x]\n\n[^x]: note", block) for block in ("b1", "b2"))
    ids, links = set(re.findall(r'id="([^"]+)"', one)), set(re.findall(r'href="#([^"]+)"', one))
    assert links == ids == {"fn-b1-1", "fn-b1-1-from-0", "fn-b1-1-from-1"}
    assert not ids & set(re.findall(r'id="([^"]+)"', two))


def test_no_text_makes_an_id_of_its_own() -> None:
    html = markdown.render('<a id="chat">x</a> <sup data-note="1-0">[1]</sup> [a](#chat)', 'b"><i id="x')
    assert not re.search(r"<[^>]* (id|data-note|href)=", html)


@pytest.mark.parametrize(("lines", "folded"), [(40, False), (41, True)])
def test_only_long_code_is_folded(lines: int, folded: bool) -> None:
    source = "```\n" + "x\n" * lines + "```\n"
    for html in (markdown.render(source), replay([source])):
        assert (f"Show all {lines} lines" in html) == folded


def test_an_open_code_block_is_never_folded() -> None:
    assert "fold" not in replay(["```\n", "x\n" * 300])


def test_a_table_scrolls_in_a_frame_of_its_own() -> None:
    assert 'role="group" tabindex="0" aria-label="Table"><table' in markdown.render("| a |\n|---|\n| 1 |")
