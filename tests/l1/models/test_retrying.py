"""An embedding API that is busy for a while."""

import pytest
from conftest import WordEmbeddings, write_files

from langchain_lookup_knowledge import EmbeddingError, KnowledgeBase
from langchain_lookup_knowledge.l1.models import retrying
from langchain_lookup_knowledge.l1.models.retrying import MAX_PAUSE, MAX_TRIES, passes, retried


class Response:
    def __init__(self, status_code, headers=()):
        self.status_code, self.headers = status_code, dict(headers)


class ApiError(Exception):
    def __init__(self, status_code, headers=()):
        super().__init__("key=secret")
        self.response = Response(status_code, headers)


class RateLimitError(Exception):
    pass


def failing(*errors):
    left = list(errors)

    def call():
        if left:
            raise left.pop(0)
        return "done"

    return call


@pytest.mark.parametrize(
    "error", [ApiError(429), ApiError(503), RateLimitError(), TimeoutError(), ConnectionError()]
)
def test_a_failure_that_passes_is_tried_again(error):
    pauses = []
    assert retried(failing(error, error, error), pauses.append) == "done"
    assert [round(pause / 1.1) for pause in pauses] == [1, 2, 4]


@pytest.mark.parametrize("error", [ApiError(401), ApiError(400), ValueError("bad")])
def test_any_other_failure_is_raised_at_once(error):
    assert not passes(error)
    with pytest.raises(type(error)):
        retried(failing(error), lambda pause: pytest.fail("it waited"))


def test_a_failure_that_does_not_pass_in_time_is_raised():
    pauses = []
    with pytest.raises(RateLimitError):
        retried(failing(*[RateLimitError()] * MAX_TRIES), pauses.append)
    assert len(pauses) == MAX_TRIES - 1


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [
        ("7", 7, 8.4),
        ("9999", MAX_PAUSE, 1.2 * MAX_PAUSE),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 1, 1.2),
        ("soon", 1, 1.2),
    ],
)
def test_the_server_says_when_to_come_back(asked, least, most):
    pauses = []
    retried(failing(ApiError(429, {"retry-after": asked})), pauses.append)
    assert least <= pauses[0] <= most


class Busy(WordEmbeddings):
    """An API that answers every second request."""

    def __init__(self, failures):
        super().__init__()
        self.failures, self.calls = failures, 0

    def embed_documents(self, texts):
        self.calls += 1
        if self.calls in self.failures:
            raise ApiError(429)
        return super().embed_documents(texts)


def test_a_build_goes_through_rate_limits_and_later_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(retrying, "FIRST_PAUSE", 0.001)
    files = {f"{n}.md": f"# Entry {n}\n\nThe text of entry {n}.\n" for n in range(20)}
    folder = write_files(tmp_path / "kb", files)
    model = Busy(set(range(3, 3 + MAX_TRIES)))
    with KnowledgeBase.open(folder, embedding=model) as kb:
        assert "the embedding model failed with ApiError" in kb.problems[0].message
        assert "secret" not in kb.problems[0].message
        before = len(model.embedded)
        assert 0 < before < len(files)
        model.failures = {model.calls + 1}
        kb.sync()
        assert kb.problems == []
        assert len(model.embedded) == len(files)


def test_a_build_that_cannot_go_on_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(retrying, "FIRST_PAUSE", 0.001)
    folder = write_files(tmp_path / "kb", {"a.md": "# A\n\nText.\n"})
    kb = KnowledgeBase.open(folder, embedding=Busy(set(range(1, 100))), sync=False)
    with kb, pytest.raises(EmbeddingError, match="failed with ApiError"):
        kb.sync()
