"""What a viewer may take from its doorbell, and when only the stream knows."""

from __future__ import annotations

import pytest

from gateway.bus import TOLD_BYTES, Entry, Watch


def entry(number: int) -> Entry:
    return f"1-{number}", {b"d": b"delta %d" % number}


@pytest.fixture
def watch() -> Watch:
    """One that has looked into the stream up to entry 3."""
    watch = Watch()
    assert watch.take("0-0") is None
    return watch


def tell(watch: Watch, *numbers: int) -> None:
    for number in numbers:
        watch.tell(f"1-{number - 1}", f"1-{number}", b"delta %d" % number)


def test_entries_that_follow_one_another_are_taken_as_told(watch: Watch) -> None:
    tell(watch, 4, 5)
    assert watch.rang.is_set()
    assert watch.take("1-3") == [entry(4), entry(5)]
    assert not watch.rang.is_set()
    assert watch.take("1-5") == []


def test_what_was_read_meanwhile_is_not_taken_twice(watch: Watch) -> None:
    tell(watch, 3, 4, 5)
    assert watch.take("1-4") == [entry(5)]


@pytest.mark.parametrize("numbers", [(5,), (4, 6), (10,)])
def test_a_gap_sends_to_the_stream_and_what_follows_is_taken_again(watch: Watch, numbers: tuple[int, ...]) -> None:
    tell(watch, *numbers)
    assert watch.take("1-3") is None
    tell(watch, 11)
    assert watch.take("1-10") == [entry(11)]


def test_numbers_are_compared_as_numbers(watch: Watch) -> None:
    tell(watch, 10)
    assert watch.take("1-9") == [entry(10)]
    tell(watch, 11)
    assert watch.take("1-100") == []


def test_a_plain_ring_sends_to_the_stream(watch: Watch) -> None:
    tell(watch, 4)
    watch.ring()
    tell(watch, 5)
    assert watch.take("1-3") is None
    assert watch.take("1-5") == []


def test_a_viewer_that_does_not_come_keeps_nothing_waiting_for_it(watch: Watch) -> None:
    for number in range(4, 10):
        watch.tell(f"1-{number - 1}", f"1-{number}", b"x" * (TOLD_BYTES // 4))
    assert watch._told == []
    assert watch.take("1-3") is None
