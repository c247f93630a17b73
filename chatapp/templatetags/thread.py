"""Template tags of the thread: parts with their templates, Markdown, and text with its hidden characters shown."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import template
from django.template.defaultfilters import stringfilter
from django.template.loader import get_template
from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from chatapp import markdown
from chatapp import plain as plain_text

register = template.Library()

register.filter("visible", stringfilter(plain_text.visible))
register.filter("plain", plain_text.plain)


@register.simple_tag
def part(item: Any) -> SafeString:
    """One part of the thread, drawn by its own template."""
    return draw(item.template, part=item)


def draw(template_name: str, **context: Any) -> SafeString:
    return mark_safe(get_template(template_name).render(context))


@register.filter
def markdown_html(text: str, block_id: str = "") -> SafeString:
    return mark_safe(markdown.render(text, block_id))


@register.filter
def duration(span: timedelta | None) -> str:
    """As a person says it; empty where there is nothing to say."""
    if span is None or span < timedelta(milliseconds=1):
        return ""
    seconds = span.total_seconds()
    if seconds < 0.9995:
        return _("%d ms") % round(seconds * 1000)
    if seconds < 59.95:
        return _("%s s") % number_format(round(seconds, 1), 1)
    minutes, rest = divmod(int(seconds + 0.05), 60)
    return _("%(minutes)d min %(seconds)d s") % {"minutes": minutes, "seconds": rest}


@register.filter
def when(moment: datetime) -> str:
    """As short as it is clear: today's time, this week's day, else the date."""
    local, now = timezone.localtime(moment), timezone.localtime()
    if local.date() == now.date():
        return date_format(local, "TIME_FORMAT")
    return date_format(local, "l" if now - local < timedelta(days=6) else "SHORT_DATE_FORMAT")


@register.filter
def day(moment: datetime | None) -> str:
    """The day as people name it; two moments of one day have the same."""
    if moment is None:
        return ""
    local = timezone.localtime(moment)
    return _("%(weekday)s, %(date)s") % {"weekday": date_format(local, "l"), "date": date_format(local, "DATE_FORMAT")}


@register.filter
def is_today(moment: datetime) -> bool:
    return timezone.localdate(moment) == timezone.localdate()


@register.filter
def exactly(moment: datetime) -> str:
    return date_format(timezone.localtime(moment), "DATETIME_FORMAT")
