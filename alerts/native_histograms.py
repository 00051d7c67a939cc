"""Native histograms: what Prometheus takes them in, its protobuf format.

Prometheus asks for this format where it is to store native histograms (`--enable-feature=native-histograms`, or
`scrape_native_histograms` from version 3 on); its text formats cannot carry them, and prometheus_client (0.26) writes
text alone. So the messages of `io.prometheus.client` that are needed are defined here. Whoever asks for text gets the
classic buckets, and so does everybody in protobuf, beside the native ones.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.proto import serialize_length_prefixed
from prometheus_client.core import HistogramMetricFamily, Metric

CONTENT_TYPE: Final = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"


class Buckets(NamedTuple):
    """A native histogram's buckets: `counts` of those from index `first` on; no value is negative."""

    schema: int
    zero_threshold: float
    zero: int
    first: int
    counts: Sequence[int]


class NativeHistogramFamily(HistogramMetricFamily):
    """A family of histograms with classic and native buckets: `native` by the values of the labels."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str]) -> None:
        super().__init__(name, documentation, labels=labels)
        self.native: dict[tuple[str, ...], Buckets] = {}
        self.label_names = tuple(labels)

    def add(self, labels: Sequence[str], classic: Iterable[tuple[float, int]], total: float, native: Buckets) -> None:
        """`classic`: upper border and cumulative count, the last border infinite. `total`: the sum of all values."""
        self.add_metric(labels, [("+Inf" if le == float("inf") else repr(le), n) for le, n in classic], total)
        self.native[tuple(labels)] = native


def asked_for(accept: str) -> bool:
    """Whether an `Accept` header prefers this format to text. Prometheus names what it likes best first."""
    return "application/vnd.google.protobuf" in accept.split(",", 1)[0]


def encode(families: Iterable[Metric]) -> bytes:
    """The families as length-delimited messages."""
    out = io.BytesIO()
    for family in families:
        message = _message(family)
        if message.metric:
            serialize_length_prefixed(message, out)
    return out.getvalue()


def _message(family: Metric) -> Any:
    if family.type == "histogram":
        return _histograms(family)
    counts = family.type == "counter"
    suffix = "_total" if counts else "_info" if family.type == "info" else ""
    message = _FAMILY(name=family.name + suffix, help=family.documentation, type=_COUNTER if counts else _GAUGE)
    for sample in family.samples:
        if sample.name == message.name:
            metric = message.metric.add(label=_labels(sample.labels))
            (metric.counter if counts else metric.gauge).value = sample.value
    return message


def _histograms(family: Metric) -> Any:
    message = _FAMILY(name=family.name, help=family.documentation, type=_HISTOGRAM)
    metrics: dict[tuple[tuple[str, str], ...], Any] = {}
    for sample in family.samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        key = tuple(sorted(labels.items()))
        if key not in metrics:
            metrics[key] = message.metric.add(label=_labels(labels))
            if isinstance(family, NativeHistogramFamily):
                own = tuple(labels[name] for name in family.label_names)
                _fill(metrics[key].histogram, family.native[own])
        histogram = metrics[key].histogram
        if sample.name.endswith("_bucket"):
            histogram.bucket.add(cumulative_count=int(sample.value), upper_bound=float(sample.labels["le"]))
        elif sample.name.endswith("_count"):
            histogram.sample_count = int(sample.value)
        elif sample.name.endswith("_sum"):
            histogram.sample_sum = sample.value
    return message


def _fill(histogram: Any, buckets: Buckets) -> None:
    """The buckets that hold anything, as spans of neighbours and the differences between their counts."""
    histogram.schema, histogram.zero_threshold, histogram.zero_count = (
        buckets.schema,
        buckets.zero_threshold,
        buckets.zero,
    )
    after, before = 0, 0
    for index, count in enumerate(buckets.counts, buckets.first):
        if not count:
            continue
        if histogram.positive_span and index == after:
            histogram.positive_span[-1].length += 1
        else:
            histogram.positive_span.add(offset=index - after, length=1)
        histogram.positive_delta.append(count - before)
        after, before = index + 1, count
    if not histogram.positive_span:
        # Without any span it would be taken for a classic one.
        histogram.positive_span.add(offset=0, length=0)


def _labels(labels: dict[str, str]) -> list[Any]:
    return [_LABEL(name=name, value=value) for name, value in labels.items()]


_Field = descriptor_pb2.FieldDescriptorProto
_TYPES: Final = {
    "string": _Field.TYPE_STRING,
    "double": _Field.TYPE_DOUBLE,
    "uint64": _Field.TYPE_UINT64,
    "uint32": _Field.TYPE_UINT32,
    "sint32": _Field.TYPE_SINT32,
    "sint64": _Field.TYPE_SINT64,
    "int32": _Field.TYPE_INT32,
}
_COUNTER, _GAUGE, _HISTOGRAM = 0, 1, 4
_MESSAGES: Final = {
    "LabelPair": (("name", 1, "string"), ("value", 2, "string")),
    "Gauge": (("value", 1, "double"),),
    "Counter": (("value", 1, "double"),),
    "Bucket": (("cumulative_count", 1, "uint64"), ("upper_bound", 2, "double")),
    "BucketSpan": (("offset", 1, "sint32"), ("length", 2, "uint32")),
    "Histogram": (
        ("sample_count", 1, "uint64"),
        ("sample_sum", 2, "double"),
        ("bucket", 3, "*Bucket"),
        ("schema", 5, "sint32"),
        ("zero_threshold", 6, "double"),
        ("zero_count", 7, "uint64"),
        ("positive_span", 12, "*BucketSpan"),
        ("positive_delta", 13, "*sint64"),
    ),
    "Metric": (
        ("label", 1, "*LabelPair"),
        ("gauge", 2, "Gauge"),
        ("counter", 3, "Counter"),
        ("histogram", 7, "Histogram"),
    ),
    "MetricFamily": (("name", 1, "string"), ("help", 2, "string"), ("type", 3, "int32"), ("metric", 4, "*Metric")),
}
"""Of client_model's metrics.proto: (name, number, type) of each field, `*` where it is repeated. An enumeration is an
int32 on the wire."""


def _classes() -> dict[str, Any]:
    package = "io.prometheus.client"
    file = descriptor_pb2.FileDescriptorProto(name="offsetwatch/metrics.proto", package=package, syntax="proto2")
    for message, fields in _MESSAGES.items():
        made = file.message_type.add(name=message)
        for name, number, kind in fields:
            label = _Field.LABEL_REPEATED if kind.startswith("*") else _Field.LABEL_OPTIONAL
            one = made.field.add(name=name, number=number, label=label)
            if (plain := kind.removeprefix("*")) in _TYPES:
                one.type = _TYPES[plain]
                if kind.startswith("*"):
                    one.options.packed = True
            else:
                one.type, one.type_name = _Field.TYPE_MESSAGE, f".{package}.{plain}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in _MESSAGES}


_MADE: Final = _classes()
_FAMILY, _LABEL = _MADE["MetricFamily"], _MADE["LabelPair"]
