"""Group commit: what several threads want written at once is written together, and each learns what
became of its own.
"""

import signal
import threading
import time

import pytest

from langchain_lookup_knowledge.errors import RecordError, RecordRefusedError
from langchain_lookup_knowledge.records.group_commit import LARGEST_GROUP, GroupCommit


class Store:
    """Keeps the groups it was given; the first call waits until it is let go."""

    def __init__(self, fail_on=None):
        self.groups = []
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.fail_on = fail_on

    def __call__(self, group, seconds):
        self.groups.append(list(group))
        if len(self.groups) == 1:
            self.entered.set()
            assert self.go_on.wait(60)
        if self.fail_on is not None and len(self.groups) == self.fail_on[0]:
            raise self.fail_on[1]


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def write_at_once(items, store, *, held=None, seconds=60.0, meanwhile=lambda commit: None):
    """Write the first item and, while that is under way, the others; return what each raised, None
    for nothing.
    """
    commit, outcome, held = GroupCommit(), {}, held or store

    def write(item):
        try:
            commit.write(item, seconds, store)
            outcome[item] = None
        except BaseException as error:  # noqa: BLE001
            outcome[item] = error

    threads = [threading.Thread(target=write, args=(item,), name=f"item {item}") for item in items]
    threads[0].start()
    assert held.entered.wait(60)
    for thread in threads[1:]:
        thread.start()
    wait_until(lambda: len(commit._waiting) == len(items) - 1)
    meanwhile(commit)
    held.go_on.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return outcome


def test_what_comes_while_one_is_written_is_written_together():
    store = Store()
    outcome = write_at_once(range(10), store)
    assert set(outcome.values()) == {None}
    assert [len(group) for group in store.groups] == [1, 9]


def test_a_group_has_a_size_that_fits_and_the_rest_goes_next():
    store = Store()
    outcome = write_at_once(range(LARGEST_GROUP + 6), store)
    assert set(outcome.values()) == {None}
    assert [len(group) for group in store.groups] == [1, LARGEST_GROUP, 5]


def test_each_thread_of_a_group_learns_of_its_failure_and_no_other():
    store = Store(fail_on=(2, RecordError("the disk is full")))
    outcome = write_at_once(range(4), store)
    assert outcome.pop(0) is None
    assert {str(error) for error in outcome.values()} == {"the disk is full"}
    assert len(set(map(id, outcome.values()))) == 3  # an exception of its own for each thread


def test_a_thread_that_is_interrupted_while_it_writes_leaves_no_other_waiting():
    store = Store(fail_on=(1, KeyboardInterrupt()))
    outcome = write_at_once(range(3), store)
    assert isinstance(outcome[0], KeyboardInterrupt)
    assert outcome[1] is outcome[2] is None


def test_who_waits_too_long_gives_up_and_is_not_written():
    store = Store()
    outcome = write_at_once(
        range(3), store, seconds=0.05, meanwhile=lambda c: wait_until(lambda: not c._waiting)
    )
    assert outcome[0] is None
    assert {str(outcome[1]), str(outcome[2])} == {
        "the record database has been busy for too long: check it"
    }
    assert store.groups == [[0]]


def test_those_whose_writer_is_interrupted_learn_that_they_were_not_written():
    outcome = write_at_once(range(3), Store(fail_on=(2, KeyboardInterrupt())))
    assert outcome.pop(0) is None
    interrupted = "RecordError('the writing of the record was interrupted')"
    assert sorted(map(repr, outcome.values())) == ["KeyboardInterrupt()", interrupted]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RecordRefusedError("the row is refused"), "the row is refused"),
        (OverflowError(), "the record cannot be written (OverflowError)"),
    ],
)
def test_an_item_that_is_refused_harms_no_other_of_its_group(error, told):
    kept, held = [], Store()

    def store(group, seconds):
        held(group, seconds)
        if 2 in group:
            raise error
        kept.extend(group)

    outcome = write_at_once(range(5), store, held=held)
    assert sorted(kept) == [0, 1, 3, 4]
    assert str(outcome.pop(2)) == told
    assert set(outcome.values()) == {None}


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs a signal for one thread")
def test_a_waiting_thread_that_is_interrupted_takes_its_item_back_and_wakes_the_next():
    commit, store, outcome = GroupCommit(), Store(), []

    def write(item):
        outcome.append(commit.write(item, 60.0, store))

    def interrupt():
        wait_until(lambda: any(each.item == 1 for each in commit._waiting))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threads = [threading.Thread(target=write, args=(item,)) for item in (0, 2)]
    threads[0].start()
    assert store.entered.wait(60)
    threads.append(threading.Thread(target=interrupt))
    threads[2].start()
    with pytest.raises(KeyboardInterrupt):
        commit.write(1, 60.0, store)
    threads[1].start()
    wait_until(lambda: [each.item for each in commit._waiting] == [2])
    store.go_on.set()
    for thread in threads:
        thread.join(60)
    assert outcome == [None, None]
    assert store.groups == [[0], [2]]


def test_many_threads_write_each_item_once():
    commit, written, lock = GroupCommit(), [], threading.Lock()

    def store(group, seconds):
        assert group
        assert lock.acquire(blocking=False), "two groups at once"
        written.extend(group)
        lock.release()

    def write(number):
        for i in range(200):
            commit.write((number, i), 10.0, store)

    workers = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert len(written) == len(set(written)) == 16 * 200
