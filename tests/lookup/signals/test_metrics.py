"""Metrics of lookups, read as an exporter reads them."""

import subprocess
import sys
from threading import Event, Thread

import pytest
from conftest import FILES, WordEmbeddings, write_files

from langchain_lookup_knowledge import KnowledgeBase, create_lookup_knowledge_graph
from langchain_lookup_knowledge.lookup.signals import metrics as signals

metrics = pytest.importorskip("opentelemetry.metrics")
sdk = pytest.importorskip("opentelemetry.sdk.metrics")
export = pytest.importorskip("opentelemetry.sdk.metrics.export")


@pytest.fixture(scope="module")
def reader():
    made = export.InMemoryMetricReader()
    metrics.set_meter_provider(sdk.MeterProvider([made]))
    return made


def points(reader):
    """Return the points of all metrics: (name, attributes) and value, or count of times."""
    data = reader.get_metrics_data()
    return {
        (metric.name.removeprefix("lookup_knowledge."), tuple(sorted(point.attributes.items()))): (
            getattr(point, "value", None) or getattr(point, "count", 0)
        )
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        if scope.scope.name == "langchain_lookup_knowledge"
        for metric in scope.metrics
        for point in metric.data.data_points
    }


@pytest.mark.parametrize("record", ["default", None])
def test_lookups_and_what_they_depend_on_are_measured(tmp_path, reader, record):
    name = f"handbook-{record}"
    folder = write_files(tmp_path / name, FILES)
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), progress=False) as kb:
        graph = create_lookup_knowledge_graph(kb, record=record, name=name)
        result = graph.invoke({"query": "vpn"})
        graph.invoke({"query": "vpn"})
        found = points(reader)
        outcome = {
            "tool": name,
            "status": result["status"],
            "layer": result["retrieval_layer"],
            "l1": "ok",
            "relevance": result["relevance"]["level"],
            "recorded": "stored" if record else "off",
        }
        base = (("knowledge_base", name),)
        assert found["lookups", tuple(sorted(outcome.items()))] == 2
        assert found["lookup.duration", (("tool", name),)] == 2
        assert found["l1.duration", (("l1", "ok"), ("tool", name))] == 2
        assert (found["l1.up", base], found["index.up", base]) == (1, 1)
        assert ("spool.records", base) in found or record is None
        for _ in range(10):
            kb.l1.breaker.within(2.0).record_failure("unavailable", "out of order", counts=True)
        found = points(reader)
        assert (found["l1.up", base], found["index.up", base]) == (0, 1)


class Opened:
    """Stands for one of many knowledge bases that open at once."""


@pytest.fixture
def hasty():
    """Let threads take turns as often as possible."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def test_knowledge_bases_may_open_while_an_exporter_reads(hasty):
    many, reading, opened, faults = [Opened() for _ in range(5000)], Event(), Event(), []

    def read():
        try:
            while not opened.is_set():
                signals._observed(lambda kb, recorder: None, min, None)
                reading.set()
        except RuntimeError as error:
            faults.append(error)

    exporter = Thread(target=read)
    exporter.start()
    reading.wait()
    for one in many:
        signals.watch(one, None)
    opened.set()
    exporter.join()
    assert faults == []


def test_a_failure_is_not_hidden_by_another_folder_of_the_same_name(tmp_path, reader):
    base = (("knowledge_base", "same"),)
    folders = [write_files(tmp_path / tenant / "same", FILES) for tenant in ("a", "b")]
    opened = [KnowledgeBase.open(one, embedding=WordEmbeddings()) for one in folders]
    for kb in opened:
        create_lookup_knowledge_graph(kb)
    assert points(reader)["l1.up", base] == 1
    for _ in range(10):
        opened[0].l1.breaker.within(2.0).record_failure("unavailable", "down", counts=True)
    found = points(reader)
    assert (found["l1.up", base], found["index.up", base]) == (0, 1)
    for kb in opened:
        kb.close()


@pytest.mark.process
def test_lookups_work_without_opentelemetry(tmp_path):
    folder = write_files(tmp_path / "kb", FILES)
    script = f"""
import sys
sys.modules["opentelemetry"] = None
from langchain_lookup_knowledge import KnowledgeBase, create_lookup_knowledge_graph
with KnowledgeBase.open({str(folder)!r}, index=None) as kb:
    result = create_lookup_knowledge_graph(kb).invoke({{"query": "vpn"}})
    assert (result["status"], result["recorded"]) == ("ok", "stored"), result
"""
    subprocess.run([sys.executable, "-c", script], check=True)
