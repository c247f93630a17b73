"""Several threads of one process write at once."""

from __future__ import annotations

import threading

import pytest
from django.contrib.auth.models import User
from django.db import connection

from chatapp.models import Event
from chatapp.store import posts
from chatapp.store.conversations import create_conversation
from chatapp.store.posts import Draft

pytestmark = pytest.mark.django_db(transaction=True)


def test_writers_of_one_process_hand_the_lock_on_and_never_meet_a_locked_database(alice: User) -> None:
    talks = [create_conversation(alice, model="demo") for _ in range(4)]
    failures: list[BaseException] = []

    def write(conversation_id: str) -> None:
        try:
            if connection.vendor == "sqlite":
                with connection.cursor() as cursor:
                    # Its own waiting is off: whoever meets the lock fails at once.
                    cursor.execute("PRAGMA busy_timeout = 0")
            for number in range(15):
                posts.post_message(alice.pk, conversation_id, Draft(f"message {number}"))
        except Exception as error:  # noqa: BLE001 - told below
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=write, args=[talk.pk]) for talk in talks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert Event.objects.filter(conversation__in=talks, type="USER_MESSAGE").count() == 60
