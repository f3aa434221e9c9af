"""Forks: whoever registers is told in each child, and what the parent still uses is kept there."""

import gc
import os
import signal
import weakref

import pytest

from langchain_lookup_knowledge import forks


class Owner:
    def __init__(self):
        self.told = 0
        forks.register(self)

    def after_fork(self):
        self.told += 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_owner_is_told_in_the_child_and_not_in_the_parent():
    owner = Owner()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if owner.told == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert owner.told == 0


def test_a_registered_owner_can_go():
    owner = weakref.ref(Owner())
    gc.collect()
    assert owner() is None


def test_what_was_inherited_stays(monkeypatch):
    monkeypatch.setattr(forks, "_inherited", [])
    kept = Owner()
    watched = weakref.ref(kept)
    forks.keep_inherited(kept)
    del kept
    gc.collect()
    assert watched() is not None
