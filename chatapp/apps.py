"""The app's configuration."""

from django.apps import AppConfig


class ChatappConfig(AppConfig):
    name = "chatapp"
    verbose_name = "Branchline"

    def ready(self) -> None:
        # Registers the checks of the agents.
        from chatapp import agents  # noqa: F401
