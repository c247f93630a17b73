"""Websocket paths."""

from django.urls import re_path

from gateway.consumers import ChatConsumer

websocket_urlpatterns = [re_path(r"^ws/c/(?P<conversation_id>[^/]{1,200})/$", ChatConsumer.as_asgi())]
