"""The gateway's HTTP part of the URL map: the REST API."""

from gateway.api.app import addresses

urlpatterns = addresses()
