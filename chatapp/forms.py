"""The account forms: Django's own, with what browsers and password managers want to know."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm, SetPasswordForm, UserCreationForm
from django.contrib.auth.models import User


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
