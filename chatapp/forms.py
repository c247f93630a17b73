"""The forms of accounts: Django's own with what password managers want to know, and a new API token's."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm, SetPasswordForm, UserCreationForm
from django.contrib.auth.models import User
from django.utils.translation import gettext_lazy as _


def _hints(form: forms.BaseForm) -> None:
    """Ties each field to its help and error, which Django leaves to the template."""
    for name, field in form.fields.items():
        described = [f"id_{name}_help"] if field.help_text else []
        if form.is_bound and name in form.errors:
            field.widget.attrs["aria-invalid"] = "true"
            described.append(f"id_{name}_error")
        if described:
            field.widget.attrs["aria-describedby"] = " ".join(described)


class LoginForm(AuthenticationForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].widget.attrs |= {"autocapitalize": "none", "spellcheck": "false"}


class SignupForm(UserCreationForm):  # type: ignore[type-arg]
    class Meta:
        model = User
        fields = ("username",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields.pop("usable_password", None)
        _hints(self)


class FirstPasswordForm(SetPasswordForm):  # type: ignore[type-arg]
    """After a one-time link: nobody knows an old password to ask for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _hints(self)


class ChangePasswordForm(PasswordChangeForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _hints(self)


class TokenForm(forms.Form):
    """What a new token is called, may do, and how long."""

    SCOPES = (
        ("read", _("read conversations")), ("chat", _("write messages and change conversations")),
        ("approve", _("say OK to what needs one")),
    )  # fmt: skip
    LIVES = (
        ("", _("Never")), ("7", _("In 7 days")), ("30", _("In 30 days")), ("90", _("In 90 days")),
        ("365", _("In a year")),
    )  # fmt: skip

    name = forms.CharField(
        label=_("Name"), max_length=100,
        error_messages=dict.fromkeys(("required", "max_length"), _("A token needs a name of at most 100 characters.")),
    )  # fmt: skip
    scopes = forms.MultipleChoiceField(
        label=_("It may"), choices=SCOPES, widget=forms.CheckboxSelectMultiple,
        error_messages={"required": _("Choose at least one thing that the token may do.")},
    )  # fmt: skip
    days = forms.TypedChoiceField(label=_("Expires"), choices=LIVES, coerce=int, empty_value=None, required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _hints(self)
