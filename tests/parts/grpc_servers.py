"""Small gRPC servers on loopback, which answer as a Qdrant server does."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from qdrant_client import grpc as qdrant

Answer = Callable[[Any], Any]


@contextmanager
def serving(
    handler: grpc.GenericRpcHandler, certificate: tuple[str, str] | None = None
) -> Iterator[int]:
    """Serve a handler, with TLS if there is a certificate and its key, and return the port."""
    served = grpc.server(ThreadPoolExecutor(2), handlers=[handler])
    if certificate:
        chain, key = (Path(path).read_bytes() for path in certificate)
        port = served.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)]))
    else:
        port = served.add_insecure_port("127.0.0.1:0")
    served.start()
    try:
        yield port
    finally:
        served.stop(None).wait()


class Refusing(grpc.GenericRpcHandler):
    """Answers every request with one status."""

    def __init__(self, code: str, details: str = "", **metadata: str) -> None:
        self._code = getattr(grpc.StatusCode, code)
        self._details = details
        self._metadata = tuple(metadata.items())

    def service(self, handler_call_details: Any) -> Any:
        def refuse(request: bytes, context: Any) -> None:
            context.set_trailing_metadata(
                tuple((name.replace("_", "-"), value) for name, value in self._metadata)
            )
            context.abort(self._code, self._details)

        return grpc.unary_unary_rpc_method_handler(refuse)


class Collections(grpc.GenericRpcHandler):
    """Describes collections: the value of a metadata key and the number of points of each."""

    def __init__(self, key: str, found: dict[str, tuple[str, int]]) -> None:
        self._key = key
        self._found = found

    def service(self, handler_call_details: Any) -> Any:
        if handler_call_details.method != "/qdrant.Collections/Get":
            return None
        return grpc.unary_unary_rpc_method_handler(
            self._get,
            request_deserializer=qdrant.GetCollectionInfoRequest.FromString,
            response_serializer=qdrant.GetCollectionInfoResponse.SerializeToString,
        )

    def _get(self, request: Any, context: Any) -> Any:
        if request.collection_name not in self._found:
            context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"Not found: Collection `{request.collection_name}` doesn't exist!",
            )
        value, count = self._found[request.collection_name]
        info = qdrant.CollectionInfo(status=1, points_count=count)
        info.config.params.vectors_config.params.size = 4
        info.config.params.vectors_config.params.distance = qdrant.Distance.Cosine
        info.config.params.shard_number = 1
        graph, optimizer = info.config.hnsw_config, info.config.optimizer_config
        graph.m, graph.ef_construct, graph.full_scan_threshold = 16, 100, 10_000
        optimizer.deleted_threshold, optimizer.vacuum_min_vector_number = 0.2, 1000
        optimizer.default_segment_number, optimizer.flush_interval_sec = 0, 5
        info.config.wal_config.wal_capacity_mb, info.config.wal_config.wal_segments_ahead = 32, 0
        info.optimizer_status.ok = True
        info.config.metadata[self._key].string_value = value
        return qdrant.GetCollectionInfoResponse(result=info)
