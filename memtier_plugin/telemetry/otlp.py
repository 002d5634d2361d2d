"""Export spans and metrics by OTLP over HTTP, with OpenTelemetry's SDK (the extra `memtier[otel]`).

Imported only by the telemetry thread. The providers are our own, so an application's global ones
are untouched. The ``OTEL_*`` variables apply to everything not set here.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

from memtier_plugin import __version__
from memtier_plugin.core.settings.schema import Telemetry
from memtier_plugin.storage.home_files import count_queued_runs
from memtier_plugin.telemetry.measures import (
    AGENT,
    DROPPED,
    ERROR,
    INSTRUMENTS,
    QUEUE_DEPTH,
    STORE,
    UNCAPTURED,
    Operation,
    measures_of,
    operations_of,
    turns_after,
)
from memtier_plugin.telemetry.state import ExportState, WrittenRecords

_NAME: Final = "memtier"
_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURES: Final = frozenset({"true", "1", "span_only", "span_and_event"})
# Between two exports of metrics, unless OTEL_METRIC_EXPORT_INTERVAL is set
_EXPORT_MS: Final = 10_000


class _Noting:
    """An exporter that records the outcome of each export."""

    def __init__(self, exporter: Any, state: ExportState) -> None:
        self._exporter, self._state = exporter, state
        self._stopped = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._exporter, name)

    def stop(self) -> None:
        """Abandon the export in progress."""
        self._stopped = True
        self._exporter.shutdown()

    def shutdown(self, *_: Any, **_options: Any) -> None:
        """Do nothing further; `stop` has already ended it."""

    def export(self, *batch: Any, **options: Any) -> Any:
        result = self._exporter.export(*batch, **options)
        if self._stopped:
            return result
        if result.name == "SUCCESS":
            self._state.note_success()
        else:
            self._state.note_failure("the collector did not accept it")
        return result


class OtlpExporter:
    """The exporter of one process for one home."""

    def __init__(self, home: Path, telemetry: Telemetry, state: ExportState) -> None:
        # Without a handler its warnings would go to the host's stderr; an application's handlers
        # stay.
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        base = telemetry.endpoint.rstrip("/")
        # Not by `Resource.create`: it starts a thread pool, which an exiting process cannot.
        named = Resource({"service.name": _NAME, "service.version": __version__})
        resource = named.merge(OTELResourceDetector().detect())
        spans: Any = _Noting(OTLPSpanExporter(endpoint=_own_endpoint(base, "traces")), state)
        metrics: Any = _Noting(OTLPMetricExporter(endpoint=_own_endpoint(base, "metrics")), state)
        self._exporters: tuple[Any, ...] = (spans, metrics)
        self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._traces.add_span_processor(BatchSpanProcessor(spans))
        interval = None if "OTEL_METRIC_EXPORT_INTERVAL" in os.environ else _EXPORT_MS
        reader = PeriodicExportingMetricReader(metrics, export_interval_millis=interval)
        self._metrics = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._tracer = self._traces.get_tracer(_NAME, __version__)
        self._captures = os.environ.get(_CAPTURE, "").strip().lower() in _CAPTURES
        self._home = home
        self._turns: dict[str, dict[str, int]] = {}
        self._instruments = self._make_instruments()

    def export(self, written: WrittenRecords) -> None:
        """Convert records to spans and measurements."""
        for measure in measures_of(written.project, written.records):
            instrument = self._instruments[measure.instrument.name]
            if isinstance(instrument, Histogram):
                instrument.record(measure.value, measure.attributes)
            else:
                instrument.add(measure.value, measure.attributes)
        project = written.project
        self._turns[project] = turns_after(written.records, self._turns.get(project, {}))
        for operation in operations_of(project, written.records, written.ms, texts=self._captures):
            self._span(operation, written.at)

    def drop(self, number: int) -> None:
        """Count batches of records that were dropped."""
        counter = self._instruments[DROPPED.name]
        if isinstance(counter, Counter):
            counter.add(number)

    def flush(self, seconds: float) -> None:
        """Send pending data, for at most ``seconds``."""
        until = time.monotonic() + seconds
        for provider in (self._traces, self._metrics):
            provider.force_flush(max(1, int(1000 * (until - time.monotonic()))))

    def stop(self) -> None:
        """Drop pending data, and end the threads."""
        for exporter in self._exporters:
            exporter.stop()
        ending = (self._traces.shutdown, self._metrics.shutdown)
        for end in ending:  # not in this thread: they join their own threads
            with suppress(RuntimeError):  # the interpreter is exiting, and its threads with it
                threading.Thread(target=end, name="memtier-telemetry-end", daemon=True).start()

    def _span(self, operation: Operation, at: int) -> None:
        span = self._tracer.start_span(
            operation.name,
            kind=SpanKind.INTERNAL,
            attributes=operation.attributes,
            start_time=at - int(operation.ms * 1e6),
        )
        if ERROR in operation.attributes:
            span.set_status(Status(StatusCode.ERROR))
        span.end(at)

    def _make_instruments(self) -> Mapping[str, Counter | Histogram]:
        meter = self._metrics.get_meter(_NAME, __version__)
        made: dict[str, Counter | Histogram] = {}
        gauges: dict[str, Callable[[CallbackOptions], Iterator[Observation]]] = {
            QUEUE_DEPTH.name: self._observe_queue,
            UNCAPTURED.name: self._observe_turns,
        }
        for each in INSTRUMENTS:
            if each.kind == "gauge":
                meter.create_observable_gauge(
                    each.name, [gauges[each.name]], each.unit, each.meaning
                )
            elif each.kind == "histogram":
                made[each.name] = meter.create_histogram(
                    each.name,
                    each.unit,
                    each.meaning,
                    explicit_bucket_boundaries_advisory=each.buckets,
                )
            else:
                made[each.name] = meter.create_counter(each.name, each.unit, each.meaning)
        return made

    def _observe_queue(self, _options: CallbackOptions) -> Iterator[Observation]:
        yield Observation(count_queued_runs(self._home)[0])

    def _observe_turns(self, _options: CallbackOptions) -> Iterator[Observation]:
        for project, turns in [*self._turns.items()]:
            for agent, number in turns.items():
                yield Observation(number, {STORE: project, AGENT: agent})


def _own_endpoint(base: str, signal: str) -> str | None:
    """Return the configured URL of a signal; None if a standard variable sets it."""
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    return None if any(map(os.environ.get, names)) else f"{base}/v1/{signal}"
