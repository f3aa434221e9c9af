"""The state of a knowledge base: the JSON of `KnowledgeBase.health()`."""

from typing import Literal

from typing_extensions import TypedDict

L1State = Literal["untried", "ok", "failing", "paused", "disabled"]
IndexStatus = Literal["current", "behind", "building", "missing", "damaged", "remote", "off"]


class L1Health(TypedDict):
    """The state of L1 (vector search): `paused` means that it is not called for the next `retry_in`
    seconds.

    `failures`: the number of consecutive failures, with those that do not pause L1. `since`: when
    this state began, in ISO 8601, UTC. `last_failure` is kept after L1 has recovered.
    """

    l1: L1State
    since: str
    failures: int
    last_failure: str | None
    retry_in: float | None


class IndexHealth(TypedDict):
    """The state of the index after the last sync, with a `message` if there are details.

    `index`: "current", the index matches the folder; "behind", the last sync failed, and an older
    index answers; "building", a sync is running; "missing", there is no index yet; "damaged", its
    files cannot be read; "remote", it is on a server, so only lookups show its state; "off", L0
    (keyword hints) answers alone.
    """

    index: IndexStatus
    message: str | None


class SyncHealth(L1Health, IndexHealth):
    """The state of L1 and its index, and the number of entries."""

    entries: int


class Health(SyncHealth):
    """The state of a knowledge base.

    `kept_entries`: "used" if the folder was opened with the entries that an earlier reading kept in
    the data folder; "none" if none were kept; otherwise why they were not used, or cannot be
    written.
    """

    kept_entries: str


def is_answering(health: Health) -> bool:
    """Return whether vector search and the index work, judging by the last lookups and syncs. If
    they do not, L0 answers, or an index that is behind its folder.
    """
    return health["l1"] in ("untried", "ok", "disabled") and health["index"] in (
        "current",
        "building",
        "remote",
        "off",
    )
