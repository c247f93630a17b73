"""The ASGI application: HTTP to Django, websockets to the gateway. Nothing starts at import."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatapp.settings")

from channels.routing import ProtocolTypeRouter, URLRouter
from channels.sessions import CookieMiddleware, SessionMiddleware
from django.core.asgi import get_asgi_application

http = get_asgi_application()

from gateway.lifespan import with_lifespan  # noqa: E402 - the apps are loaded by the line above
from gateway.routing import websocket_urlpatterns  # noqa: E402

application = with_lifespan(
    ProtocolTypeRouter(
        {"http": http, "websocket": CookieMiddleware(SessionMiddleware(URLRouter(websocket_urlpatterns)))}
    )
)
