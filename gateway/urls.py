"""The gateway's HTTP part of the URL map: the REST API."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
