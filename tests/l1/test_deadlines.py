"""Time limits: calls that hang, called and awaited, and the threads they run in."""

import asyncio
import threading
import time

import pytest

from langchain_lookup_knowledge import StoreError
from langchain_lookup_knowledge.errors import StoreTimeoutError
from langchain_lookup_knowledge.l1 import deadlines
from langchain_lookup_knowledge.l1.deadlines import ThreadPool, remaining


def both_ways(call, seconds, workers=None):
    """Return what a call gives, called and awaited; an error stands for itself."""
    workers = workers or ThreadPool()
    answers = []
    for run in (
        lambda: workers.run(call, seconds),
        lambda: asyncio.run(workers.arun(call, seconds)),
    ):
        try:
            answers.append(run())
        except BaseException as error:  # noqa: BLE001
            answers.append(error)
    return answers


def raising(error):
    def call():
        raise error

    return call


def test_a_call_in_time_returns_its_answer():
    assert both_ways(lambda: 7, 10) == [7, 7]


def test_a_call_that_hangs_is_given_up():
    release = threading.Event()
    for error in both_ways(lambda: release.wait(30), 0.05):
        assert isinstance(error, StoreTimeoutError)
        assert str(error) == "L1 did not answer within 0.05 s"
    release.set()


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ValueError(), ValueError),
        (TimeoutError("its own"), TimeoutError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (asyncio.CancelledError(), asyncio.CancelledError),
        (SystemExit(3), StoreError),
    ],
)
def test_what_a_call_raises_comes_out_and_nobody_is_made_to_exit(raised, kind):
    assert [type(error) for error in both_ways(raising(raised), 10)] == [kind, kind]


def test_a_call_knows_how_much_time_is_left():
    assert remaining() == float("inf")
    for left in both_ways(remaining, 10):
        assert 5 < left <= 10
    assert remaining() == float("inf")


def test_a_call_runs_in_the_context_of_its_caller():
    from contextvars import ContextVar

    tenant = ContextVar("tenant", default="nobody")
    tenant.set("acme")
    assert both_ways(tenant.get, 10) == ["acme", "acme"]


def test_calls_that_hang_do_not_pile_up():
    workers, release, run = ThreadPool(), threading.Event(), []
    hanging = [workers.submit(release.wait, 30) for _ in range(deadlines.MAX_WORKERS)]
    for error in both_ways(lambda: run.append("late"), 0.05, workers):
        assert isinstance(error, StoreTimeoutError)
        assert "32 earlier calls are still running" in str(error)
    release.set()
    assert all(future.result(10) for future in hanging)
    assert both_ways(lambda: 7, 10, workers) == [7, 7]
    assert run == []


def test_more_calls_than_threads_wait_their_turn():
    workers = ThreadPool()

    async def many():
        calls = (workers.arun(lambda n=n: time.sleep(0.01) or n, 30) for n in range(200))
        return await asyncio.gather(*calls)

    assert asyncio.run(many()) == list(range(200))


def test_a_thread_is_used_again():
    workers, names = ThreadPool(), set()
    for _ in range(5):
        names.add(workers.submit(threading.get_ident, 10).result(10))
        time.sleep(0.01)
    assert len(names) == 1


def test_a_thread_without_a_call_ends_and_another_takes_the_next(monkeypatch):
    monkeypatch.setattr(deadlines, "IDLE_SECONDS", 0.05)
    workers = ThreadPool()
    thread = workers.submit(threading.current_thread, 10).result(10)
    thread.join(60)
    assert not thread.is_alive()
    assert workers.run(threading.current_thread, 10) is not thread


def test_threads_that_are_dismissed_end_but_not_those_at_work():
    workers, release = ThreadPool(), threading.Event()
    working = workers.submit(lambda: release.wait(30) and threading.current_thread(), 30)
    idle = workers.submit(threading.current_thread, 10).result(10)
    time.sleep(0.05)
    workers.shutdown()
    idle.join(60)
    assert not idle.is_alive()
    release.set()
    assert working.result(10).is_alive()
    assert workers.run(lambda: 7, 10) == 7


def test_an_answer_that_comes_after_its_event_loop_is_gone_disturbs_nobody(caplog):
    workers, release = ThreadPool(), threading.Event()
    with pytest.raises(StoreTimeoutError):
        asyncio.run(workers.arun(lambda: release.wait(30), 0.05))
    release.set()
    assert workers.run(lambda: 7, 10) == 7
    time.sleep(0.05)
    assert caplog.records == []


async def test_a_task_that_is_cancelled_while_it_waits_is_cancelled():
    release = threading.Event()
    task = asyncio.create_task(ThreadPool().arun(lambda: release.wait(30), 30))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
