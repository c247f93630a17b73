"""The URL map. The gateway's part is named by dotted string only."""

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import include, path, reverse

from chatapp.views import accounts, health


def _queues(request: HttpRequest) -> HttpResponse:
    """django-rq's own pages live inside the admin; only superusers are sent there."""
    if not (request.user.is_active and request.user.is_superuser):
        raise Http404
    return HttpResponseRedirect(reverse("admin:django_rq_dashboard_changelist"))


urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
    path("accounts/login/", accounts.login, name="login"),
    path("accounts/logout/", accounts.logout, name="logout"),
    path("accounts/password/", accounts.password, name="password"),
    path("accounts/once/<str:secret>", accounts.once, name="once"),
    path("accounts/signup/", accounts.signup, name="signup"),
    path("admin/django-rq/", _queues, name="queues"),
    path("admin/", admin.site.urls),
    path("api/", include("gateway.urls")),
    path("", include("chatapp.views.lists")),
    path("", include("gateway.pages")),
    path("", include("chatapp.views.settings")),
    path("", include("chatapp.views.conversation")),
    path("", include("chatapp.views.replies")),
    path("", include("chatapp.views.drawer")),
    path("", include("chatapp.views.attachments")),
    path("", include("chatapp.views.picker")),
]
