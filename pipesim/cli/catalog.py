"""`pipesim catalog`: the GPUs, nodes, clusters and models that the estimate knows, and where each value is from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.table import Table

from pipesim.cli.options.outputs import Json
from pipesim.cli.views.tables import console
from pipesim.costs.catalog_files import UnknownName, read_catalogue, unknown
from pipesim.costs.clusters.cluster_catalogue import cluster_names, load_cluster
from pipesim.costs.clusters.fitted import derate
from pipesim.costs.clusters.gpu import find_gpu, gpu_keys
from pipesim.costs.models.model_catalog import catalogue_source, load_model, model_names
from pipesim.costs.models.params import parameters
from pipesim.costs.times.compute import kernels


class Section(StrEnum):
    """Parts of the catalogue."""

    GPUS = "gpus"
    CLUSTERS = "clusters"
    MODELS = "models"
    FABRICS = "fabrics"


def catalog(
    name: Annotated[str, typer.Argument(help="Show this GPU, node, cluster or model with its sources.")] = "",
    *,
    only: Annotated[Section | None, typer.Option(help="List only this part.")] = None,
    as_json: Json = False,
) -> None:
    """List the GPUs, clusters, kinds of network and models known by name, or show one with its sources.

    Example: pipesim catalog h100-sxm
    """
    if name:
        found = entry(name)
        print(json.dumps(found, indent=2)) if as_json else _print_entry(found)
        return
    listed = {section.value: _SECTIONS[section]() for section in Section if only in (None, section)}
    if as_json:
        print(json.dumps(listed, indent=2))
        return
    for title, rows in listed.items():
        _print_rows(title, rows)


def entry(name: str) -> dict[str, Any]:
    """Everything known under a name: values, what is reached of them, sources. Raises UnknownName."""
    wanted = name.strip().lower()
    if wanted in model_names():
        return {"kind": "model", **_model(wanted)}
    cluster = _cluster(wanted) if wanted in cluster_names() else None
    try:
        found = _gpu(find_gpu(name).key)
    except UnknownName:
        if cluster is not None:
            return {"kind": "cluster", **cluster}
        known = (*gpu_keys(), *cluster_names(), *model_names())
        raise unknown("GPU, cluster or model", name, known, listed=["see `pipesim catalog`"]) from None
    return {"kind": "gpu", **found} | ({"cluster": cluster} if cluster is not None else {})


def _gpu(key: str) -> dict[str, Any]:
    content = read_catalogue("gpus.yaml")
    given = content["gpus"][key]
    sources = {what: content["references"].get(name, name) for what, name in given["sources"].items()}
    return {"key": key, **given, "sources": sources, **_reached(key)}


def _gpus() -> list[dict[str, Any]]:
    rows = []
    for key in gpu_keys():
        gpu, given = find_gpu(key), read_catalogue("gpus.yaml")["gpus"][key]
        rows.append(
            {
                "key": key,
                "name": gpu.name,
                "architecture": gpu.architecture,
                "memory_gib": given["memory_gib"],
                "memory_gb_per_s": given["memory_gb_per_s"],
                "peak_tflops": given["peak_tflops"],
                "link": f"{gpu.link.kind} {gpu.link.bytes_per_s / 1e9:g} GB/s",
                "kernels": kernels(gpu).measured_on,
            }
        )
    return rows


def _clusters() -> list[dict[str, Any]]:
    return [_cluster(name) for name in cluster_names()]


def _cluster(name: str) -> dict[str, Any]:
    content = read_catalogue("clusters.yaml")
    given = content["nodes"].get(name) or content["clusters"][name]
    node = load_cluster(name).nodes[0]
    return {
        "key": name,
        "gpu": node.gpu.name,
        "gpus_per_node": node.gpus,
        "link": f"{node.link.kind} {node.link.bytes_per_s / 1e9:g} GB/s",
        "network": node.port.kind,
        "node_gbit_per_s": node.network_bytes_per_s * 8 / 1e9,
        "levels": [level["name"] for level in given.get("levels", [])] or ["network"],
        "source": content["references"].get(given["source"], given["source"]),
    }


def _models() -> list[dict[str, Any]]:
    return [_model(name) for name in model_names()]


def _model(name: str) -> dict[str, Any]:
    model = load_model(name)
    return {
        "key": name,
        "architecture": model.architecture,
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "ffn": model.ffn,
        "vocab": model.vocab,
        "parameters": parameters(model).total,
        "source": catalogue_source(name),
    }


def _fabrics() -> list[dict[str, Any]]:
    return [{"kind": kind, **values} for kind, values in read_catalogue("fitted.yaml")["fabrics"].items()]


_SECTIONS = {Section.GPUS: _gpus, Section.CLUSTERS: _clusters, Section.MODELS: _models, Section.FABRICS: _fabrics}


def _reached(key: str) -> dict[str, Any]:
    """What kernels of a GPU reach of its promises, and on which GPU they were measured."""
    gpu = find_gpu(key)
    reached = derate(gpu)
    return {
        "kernels": kernels(gpu).measured_on,
        "reached": {"gemm": reached.gemm, "attention": reached.attention, "memory": reached.memory},
    }


def _print_rows(title: str, rows: list[dict[str, Any]]) -> None:
    shown = [_short(row) for row in rows]
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in shown[0]:
        table.add_column(column)
    for row in shown:
        table.add_row(*(_text(value) for value in row.values()))
    console().print(table)


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a list without what one entry shows better; of the peaks those of 16 and 8 bits."""
    short = {name: value for name, value in row.items() if name not in ("name", "architecture", "kernels", "source")}
    peaks = short.pop("peak_tflops", None)
    if peaks is not None:
        short |= {"fp16_tflops": peaks["fp16"], "fp8_tflops": peaks.get("fp8")}
    return short


def _print_entry(found: Mapping[str, Any]) -> None:
    table = Table(show_header=False)
    for name, value in found.items():
        table.add_row(name, "\n".join(_lines(value)) if isinstance(value, dict) else _text(value))
    console().print(table)


def _lines(values: Mapping[str, Any]) -> Iterable[str]:
    return (f"{name}: {_text(value)}" for name, value in values.items())


def _text(value: Any) -> str:
    match value:
        case dict():
            return "  ".join(f"{name} {_text(inner)}" for name, inner in value.items())
        case list():
            return ", ".join(map(_text, value)) or "-"
        case None:
            return "-"
        case int() if value > 999_999:
            return f"{value / 1e9:.2f} B"
        case float():
            return f"{value:g}"
        case _:
            return str(value)
