"""`make messages`: the strings of templates and code → each language's .po, and that → .mo. Needs no gettext tools."""

from __future__ import annotations

import ast
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from django.utils.translation.template import templatize

ROOT = Path(__file__).resolve().parents[1]
LOCALE = ROOT / "chatapp" / "locale"
ONE = {"_", "gettext", "gettext_lazy", "gettext_noop"}
SEVERAL = {"ngettext", "ngettext_lazy"}
_LITERAL = r"""u?("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_IN_TEMPLATE = re.compile(rf"\b(?:_|n?gettext)\(\s*{_LITERAL}(?:\s*,\s*{_LITERAL})?", re.DOTALL)

# A text and its plural ("" when it has none) → its translations, one for each form.
Texts = dict[tuple[str, str], list[str]]


def of_python(source: str) -> Iterator[tuple[str, str]]:
    """Also those inside f-strings, which gettext's own tools pass over."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    for node in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        if name in SEVERAL and len(texts) > 1:
            yield texts[0], texts[1]
        elif name in ONE and texts:
            yield texts[0], ""


def of_template(source: str) -> Iterator[tuple[str, str]]:
    for match in _IN_TEMPLATE.finditer(templatize(source)):
        one, several = (ast.literal_eval(part) if part else "" for part in match.groups())
        yield one, several


def wanted() -> list[tuple[str, str]]:
    """Every translatable text, once, in the order of its files."""
    found: dict[str, str] = {}
    code = [path for app in ("chatapp", "gateway") for path in sorted((ROOT / app).rglob("*.py"))]
    for path in [*code, *sorted((ROOT / "templates").rglob("*.html"))]:
        texts = of_python if path.suffix == ".py" else of_template
        for one, several in texts(path.read_text()):
            found[one] = found.get(one) or several
    return list(found.items())


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _unquoted(lines: str) -> str:
    return "".join(ast.literal_eval(line.strip()) for line in lines.strip().splitlines())


_ENTRY = re.compile(r'^(msgid|msgid_plural|msgstr(?:\[\d\])?) ((?:"(?:[^"\\]|\\.)*"\s*)+)', re.MULTILINE)


def read_po(path: Path) -> tuple[str, Texts]:
    """The comment with the header as they stand, and the entries; a fuzzy one counts as not translated."""
    head, *blocks = re.split(r"\n\s*\n", path.read_text().strip())
    texts: Texts = {}
    for block in blocks:
        fields = {name: _unquoted(value) for name, value in _ENTRY.findall(block)}
        forms = [value for name, value in fields.items() if name.startswith("msgstr")]
        fuzzy = re.search(r"^#,.*\bfuzzy\b", block, re.MULTILINE)
        texts[fields["msgid"], fields.get("msgid_plural", "")] = [""] * len(forms) if fuzzy else forms
    return head, texts


def write_po(path: Path, head: str, texts: Texts) -> None:
    blocks = [head]
    for (one, several), forms in texts.items():
        lines = [f"msgid {_quoted(one)}"]
        if several:
            lines.append(f"msgid_plural {_quoted(several)}")
            lines += [f"msgstr[{number}] {_quoted(form)}" for number, form in enumerate(forms)]
        else:
            lines.append(f"msgstr {_quoted(forms[0])}")
        blocks.append("\n".join(lines))
    path.write_text("\n\n".join(blocks) + "\n")


def mo(head: str, texts: Texts) -> bytes:
    """The compiled form: sorted originals and translations, each with its length and place."""
    header = dict(_ENTRY.findall(head))["msgstr"]
    pairs = {"": _unquoted(header)}
    for (one, several), forms in texts.items():
        if all(forms):
            pairs["\0".join([one, several]) if several else one] = "\0".join(forms)
    rows = [(key.encode(), pairs[key].encode()) for key in sorted(pairs, key=str.encode)]
    place = 28 + 16 * len(rows)
    tables: list[bytes] = []
    for column in (0, 1):
        for row in rows:
            tables.append(struct.pack("<II", len(row[column]), place))
            place += len(row[column]) + 1
    start = struct.pack("<7I", 0x950412DE, 0, len(rows), 28, 28 + 8 * len(rows), 0, 0)
    return start + b"".join(tables) + b"".join(row[column] + b"\0" for column in (0, 1) for row in rows)


def main() -> None:
    for po in sorted(LOCALE.glob("*/LC_MESSAGES/django.po")):
        head, known = read_po(po)
        texts = {key: known.get(key, ["", ""] if key[1] else [""]) for key in wanted()}
        write_po(po, head, texts)
        po.with_suffix(".mo").write_bytes(mo(head, texts))
        bare = [one for (one, _several), forms in texts.items() if not all(forms)]
        print(f"{po.relative_to(ROOT)}: {len(texts)} texts, {len(bare)} without a translation", *bare, sep="\n  ")


if __name__ == "__main__":
    main()
