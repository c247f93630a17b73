"""Websocket paths."""

from django.urls import re_path

from gateway.consumers import ChatConsumer

websocket_urlpatterns = [re_path(r"^ws/c/(?P<conversation_id>[0-9a-f]{1,64})/$", ChatConsumer.as_asgi())]
