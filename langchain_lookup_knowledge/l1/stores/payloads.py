"""Payloads that an index has read, kept so that they are not read again."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from langchain_lookup_knowledge.l1.fusion import PointId

Payload = Mapping[str, Any]


class KeptPayloads:
    """The payloads of points, by id.

    Args:
        most: maximum number of payloads; 1,000 take about 2 MB.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[PointId, Payload] = {}

    def of(
        self,
        point_ids: Collection[PointId],
        read: Callable[[Collection[PointId]], Mapping[PointId, Payload]],
        is_current: Callable[[PointId, Payload], bool] = lambda point_id, payload: True,
    ) -> dict[PointId, Payload]:
        """Return the payloads of points; `read` returns those that are not kept.

        `is_current` tells whether a kept payload is still the current one of its point.
        """
        known = ((point_id, self._kept.get(point_id)) for point_id in point_ids)
        found = {
            i: payload for i, payload in known if payload is not None and is_current(i, payload)
        }
        if unread := [point_id for point_id in point_ids if point_id not in found]:
            new = read(unread)
            if len(self._kept) + len(new) > self._most:
                self._kept.clear()
            self._kept.update(new)
            found.update(new)
        return found


def version_of(payload: Payload | None) -> tuple[Any, Any]:
    """Return the version of a payload: the digest of its entry, and the brand of the index that it
    was written for. Payloads of a point with the same version are equal.
    """
    metadata = (payload or {}).get("metadata")
    if not isinstance(metadata, dict):
        return None, None
    return metadata.get("digest"), metadata.get("fingerprint")
