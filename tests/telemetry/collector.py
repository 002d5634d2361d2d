"""An OpenTelemetry collector: a real HTTP server on loopback that decodes what OTLP brings it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """Keeps the spans and metrics of each request; ``delay`` is how long it takes to answer."""

    def __init__(self, delay: float = 0.0, status: int = 200) -> None:
        self.delay, self.status = delay, status
        self.spans: list[Any] = []
        self.metrics: dict[str, list[Any]] = {}  # the newest data points by name
        self.resources: list[dict[str, Any]] = []
        self.url = ""

    def spans_of(self, name: str) -> list[dict[str, Any]]:
        """Return the attributes of the spans of a name."""
        return [values(span.attributes) for span in self.spans if span.name == name]

    def take(self, path: str, body: bytes) -> None:
        """Decode one request."""
        if path == "/v1/traces":
            for batch in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(values(batch.resource.attributes))
                self.spans += [span for scope in batch.scope_spans for span in scope.spans]
        else:
            for part in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (m for scope in part.scope_metrics for m in scope.metrics):
                    data = getattr(metric, metric.WhichOneof("data"))
                    self.metrics[metric.name] = [*data.data_points]


def values(attributes: Any) -> dict[str, Any]:
    """Return OTLP's list of keys and values as a dictionary."""
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value") or "string_value")
        for each in attributes
    }


@contextmanager
def running_collector(**options: Any) -> Iterator[Collector]:
    """Serve a collector on a free port of loopback."""
    collector = Collector(**options)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(collector.delay)
            if collector.status == 200:
                collector.take(self.path, body)
            self.send_response(collector.status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Say nothing of a client that has gone."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
