"""Languages: whose wish counts, whether every text is translated, and the live fragments of a page."""

from __future__ import annotations

import gettext
import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory, override_settings
from django.utils import translation
from django.views.defaults import bad_request, server_error
from pydantic_ai.messages import ModelRequest

from chatapp.runtime import demo
from chatapp.store.conversations import create_conversation
from chatapp.views.conversation import _starters
from gateway.consumers import HtmlFace, language_of
from tests import messages

OTHERS = [code for code, _name in settings.LANGUAGES if code != "en"]


def language(response: Any) -> str:
    found = re.search(r'<html lang="([^"]+)"', response.content.decode())
    assert found
    return found[1]


def po(code: str) -> Path:
    return messages.LOCALE / code / "LC_MESSAGES" / "django.po"


@pytest.mark.parametrize("code", OTHERS)
def test_every_text_is_translated(code: str) -> None:
    _head, texts = messages.read_po(po(code))
    assert set(messages.wanted()) - set(texts) == set(), "run `make messages` and translate"
    assert [key for key, forms in texts.items() if not forms or not all(forms)] == []
    assert set(texts) - set(messages.wanted()) == set(), "run `make messages`: these texts are gone"


@pytest.mark.parametrize("code", OTHERS)
def test_what_is_compiled_is_what_is_written(code: str) -> None:
    head, texts = messages.read_po(po(code))
    assert po(code).with_suffix(".mo").read_bytes() == messages.mo(head, texts), "run `make messages`"
    with po(code).with_suffix(".mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    for (one, several), forms in texts.items():
        read = [compiled.ngettext(one, several, n) for n in (1, 2)] if several else [compiled.gettext(one)]
        assert read == forms


def blanks(text: str) -> list[str]:
    """What a text leaves open, and its tags."""
    return sorted(re.findall(r"%(?:\(\w+\))?[sd]|</?\w+>", text))


@pytest.mark.parametrize("code", OTHERS)
def test_a_translation_leaves_the_same_places_open(code: str) -> None:
    _head, texts = messages.read_po(po(code))
    assert [one for (one, _several), forms in texts.items() for form in forms if blanks(one) != blanks(form)] == []


def test_it_finds_the_texts_of_templates_and_code() -> None:
    template = (
        '{% load i18n %}{% trans "It\'s" %}{{ title|default:_("None") }}{% blocktrans with n=name %}Hi {{ n }}, 5 %{%'
        " endblocktrans %}{% blocktrans count n=2 trimmed %}\n  One\n{% plural %}\n  {{ n }} more\n{% endblocktrans %}"
    )
    assert list(messages.of_template(template)) == [
        ("It's", ""), ("None", ""), ("Hi %(n)s, 5 %%", ""), ("One", "%(n)s more"),
    ]  # fmt: skip
    code = "a = f'{escape(_(\"In\" \" it\"))}'\nb = ngettext('day', 'days', n)\nc = gettext(made_up)"
    assert list(messages.of_python(code)) == [("In it", ""), ("day", "days")]


def test_a_fuzzy_entry_counts_as_not_translated(tmp_path: Path) -> None:
    file = tmp_path / "django.po"
    file.write_text(
        'msgid ""\nmsgstr ""\n"X: y\\n"\n\n#, fuzzy\nmsgid "Old"\nmsgstr "Alt"\n\nmsgid "a"\n"b\\n"\nmsgstr "c"\n'
    )
    assert messages.read_po(file)[1] == {("Old", ""): [""], ("ab\n", ""): ["c"]}


@pytest.mark.parametrize(
    ("cookie", "accepted", "shown"),
    [
        ("", "", "en"), ("", "de-AT,de;q=0.9,en;q=0.5", "de"), ("", "fr", "en"), ("en", "de", "en"),
        ("de", "en", "de"), ("xx", "de", "de"), ("\x00", "*", "en"),
    ],
)  # fmt: skip
def test_the_persons_choice_counts_before_the_browsers_wish(
    db: None, client: Client, cookie: str, accepted: str, shown: str
) -> None:
    if cookie:
        client.cookies[settings.LANGUAGE_COOKIE_NAME] = cookie
    page = client.get("/accounts/login/", headers={"accept-language": accepted})
    assert language(page) == shown
    assert ("Anmelden" in page.content.decode()) is (shown == "de")
    cookies = {settings.LANGUAGE_COOKIE_NAME: cookie}
    scope = {"cookies": cookies, "headers": [(b"accept-language", accepted.encode())]}
    assert language_of(scope) == shown


def test_without_a_wish_the_operators_language_holds(db: None, client: Client) -> None:
    with override_settings(LANGUAGE_CODE="de"):
        assert language(client.get("/accounts/login/", headers={"accept-language": "fr"})) == "de"


def test_a_chosen_language_is_kept_for_scripts_unseen_and_said_in_that_language(client: Client, alice: User) -> None:
    client.force_login(alice)
    answer = client.post("/settings/language/", {"language": "de"})
    cookie = answer.cookies[settings.LANGUAGE_COOKIE_NAME]
    assert (cookie.value, bool(cookie["httponly"]), cookie["samesite"]) == ("de", True, "Lax")
    page = client.get(answer["Location"])
    assert language(page) == "de"
    assert "Die Sprache ist gespeichert." in page.content.decode()
    assert '<option value="de" lang="de" selected>' in page.content.decode()


def test_the_browsers_wish_counts_again_when_asked(client: Client, alice: User) -> None:
    client.force_login(alice)
    client.post("/settings/language/", {"language": "de"})
    client.post("/settings/language/", {"language": ""})
    page = client.get("/settings/")
    assert language(page) == "en"
    assert "The language is saved." in page.content.decode()


def test_a_language_that_nobody_offers_is_refused(client: Client, alice: User) -> None:
    client.force_login(alice)
    answer = client.post("/settings/language/", {"language": "tlh"})
    assert answer.status_code == 400
    assert settings.LANGUAGE_COOKIE_NAME not in answer.cookies
    assert "Not understood" in answer.content.decode()
    assert Client().post("/settings/language/", {"language": "de"})["Location"].startswith("/accounts/login/")


def test_a_missing_page_says_so_in_the_persons_language(db: None, client: Client) -> None:
    page = client.get("/nowhere/", headers={"accept-language": "de"})
    assert (page.status_code, language(page)) == (404, "de")
    assert "Nicht gefunden" in page.content.decode()


def test_a_stale_form_is_answered_in_the_persons_language(db: None) -> None:
    strict = Client(enforce_csrf_checks=True)
    page = strict.post("/accounts/login/", headers={"accept-language": "de"})
    assert (page.status_code, language(page)) == (403, "de")
    assert "Nicht gesendet" in page.content.decode()


def test_a_broken_page_is_dressed_and_in_english_whatever_was_asked() -> None:
    request: HttpRequest = RequestFactory().get("/")
    with translation.override("de"):
        page: HttpResponse = server_error(request)
    html = page.content.decode()
    assert 'lang="en"' in html
    assert "Something broke" in html
    assert f"{settings.STATIC_URL}css/pages.css" in html


def test_what_was_not_understood_is_dressed_without_a_request() -> None:
    page = bad_request(RequestFactory().get("/"), ValueError())
    assert f"{settings.STATIC_URL}css/pages.css" in page.content.decode()


def test_a_page_and_its_dates_are_in_one_language(client: Client, alice: User) -> None:
    client.force_login(alice)
    talk = create_conversation(alice, model="demo")
    html = client.get(f"/c/{talk.id}/", headers={"accept-language": "de"}).content.decode()
    assert "Nachricht an die Assistenz" in html
    assert re.search(r'title="\d\d?\.\d\d?\.\d{4}', html)


@pytest.mark.parametrize(("code", "said"), [("de", "Antwortet"), ("en", "Replying")])
async def test_live_fragments_come_in_the_language_of_their_page(code: str, said: str) -> None:
    begun = {"kind": "event", "seq": 1, "id": "e1", "type": "AGENT_START", "source": None, "reply_id": "r1"}
    with translation.override("en"):
        (wire,) = await HtmlFace("c1", 0, code).wire([begun])
        assert translation.get_language() == "en"
    assert said in wire.decode()


@pytest.mark.parametrize("code", ["en", *OTHERS])
def test_the_demo_model_understands_each_starter_in_each_language(code: str) -> None:
    with translation.override(code):
        starters = _starters()
    for _title, text in starters:
        steps = demo.script([ModelRequest.user_text_prompt(text)], frozenset({"list_files", "todo_write", "read_file"}))
        assert not any(isinstance(step, demo.Say) and step.text.startswith("You wrote") for step in steps), text
