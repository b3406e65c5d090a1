"""Reads a user's cluster file (YAML or TOML) and says which field is wrong where one is.

```yaml
name: two-kinds
nodes:
  - {node: dgx-h100, count: 4}                 # a node of the catalogue
  - {gpu: my-gpu, gpus: 8, count: 2, network: ethernet, nics: 1, nic_gbit_per_s: 100}
levels:                                        # optional, lowest first; without them one flat network
  - {name: rack, nodes: 2}
  - {name: spine, kind: ethernet, gbit_per_s_per_node: 100, latency_us: 20}
gpus:                                          # optional: GPUs that the catalogue lacks
  my-gpu: {like: ada, memory_gib: 24, memory_gb_per_s: 1000, peak_tflops: {fp32: 80, bf16: 165}, pcie_gb_per_s: 32}
```
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipesim.costs.catalog_files import UnknownName, loader, read_catalogue, unknown
from pipesim.costs.clusters.cluster import Cluster, Node
from pipesim.costs.clusters.cluster_parts import BadCluster, cluster_of, node_of
from pipesim.costs.clusters.fitted import fabric
from pipesim.costs.clusters.gpu import PRECISIONS, Gpu, find_gpu, gpu_of

MAX_FILE_BYTES = 1 << 20

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1, le=1 << 20)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False)


class LinkEntry(_Entry):
    """A GPU's link to its neighbours."""

    kind: Literal["nvlink", "xgmi"]
    generation: Count
    gb_per_s: Positive
    links: Count = 1


class GpuEntry(_Entry):
    """A GPU as in `catalog/gpus.yaml`."""

    like: Literal["ampere", "hopper", "blackwell", "ada"]
    memory_gib: Positive
    memory_gb_per_s: Positive
    peak_tflops: dict[str, Positive]
    pcie_gb_per_s: Positive
    name: str | None = None
    architecture: str | None = None
    multiprocessors: Count = 100
    link: LinkEntry | None = None


class NodeEntry(_Entry):
    """So many equal nodes: one of the catalogue by name, or written out."""

    count: Count = 1
    node: str | None = None
    gpu: str | None = None
    gpus: Count | None = None
    network: str | None = None
    nics: Count | None = None
    nic_gbit_per_s: Positive | None = None
    latency_us: Positive | None = None
    efficiency: Share | None = None
    link_kind: str | None = None
    link_gb_per_s: Positive | None = None
    link_latency_us: Positive | None = None
    link_efficiency: Share | None = None


class LevelEntry(_Entry):
    """One level of network above the node."""

    name: str
    nodes: Count | None = None
    kind: str | None = None
    gbit_per_s: Positive | None = None
    gbit_per_s_per_node: Positive | None = None
    latency_us: Positive | None = None
    efficiency: Share | None = None


class ClusterFile(_Entry):
    """The whole file."""

    name: str | None = None
    nodes: Annotated[list[NodeEntry], Field(min_length=1)]
    levels: list[LevelEntry] | None = None
    gpus: dict[str, GpuEntry] = {}


def read_cluster_file(path: Path) -> Cluster:
    """The cluster that a file describes. Raises BadCluster naming the field."""
    content = _content(path)
    if not isinstance(content, dict):
        raise BadCluster(str(path), f"must be a mapping with 'nodes', not {type(content).__name__}")
    try:
        entry = ClusterFile.model_validate(content)
    except ValidationError as error:
        raise BadCluster(str(path), _first(error)) from None
    gpus = {key: _gpu(str(path), key, gpu) for key, gpu in entry.gpus.items()}
    nodes = [
        node
        for index, group in enumerate(entry.nodes)
        for node in [_node(str(path), f"nodes[{index}]", group, gpus)] * group.count
    ]
    levels = [level.model_dump() for level in entry.levels or ()]
    for index, level in enumerate(levels):
        if level["kind"] is not None:
            _check_kind(str(path), f"levels[{index}].kind", level["kind"])
    return cluster_of(entry.name or path.stem, nodes, levels or None)


def _content(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise BadCluster(str(path), f"cannot be read: {error.strerror}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise BadCluster(str(path), f"is larger than {MAX_FILE_BYTES} bytes, so it is not a cluster file")
    try:
        text = raw.decode("utf-8")
        return tomllib.loads(text) if path.suffix == ".toml" else yaml.load(text, Loader=loader())
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise BadCluster(str(path), f"is not {path.suffix[1:].upper()}: {' '.join(str(error).split())[:200]}") from None


def _first(error: ValidationError) -> str:
    """The first complaint, its field written as one would reach it."""
    found = error.errors()[0]
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found["loc"]).lstrip(".")
    given = "" if found["type"] in ("missing", "extra_forbidden") else f", not {str(found['input'])[:40]!r}"
    words = {"missing": "is missing", "extra_forbidden": "is not a field here"}
    message = words.get(found["type"], found["msg"].lower())
    return f"{field}: {message}{given}"


def _gpu(source: str, key: str, entry: GpuEntry) -> Gpu:
    bad = [name for name in entry.peak_tflops if name not in PRECISIONS]
    if bad or not entry.peak_tflops:
        given = ", ".join(bad) or "nothing"
        raise BadCluster(source, f"gpus.{key}.peak_tflops: takes {', '.join(PRECISIONS)}, not {given}")
    gpu = gpu_of(key, entry.model_dump() | {"architecture": entry.architecture or entry.like})
    if gpu.link.kind != "pcie":
        _check_kind(source, f"gpus.{key}.link", gpu.link.kind)
    return gpu


def _node(source: str, field: str, entry: NodeEntry, gpus: dict[str, Gpu]) -> Node:
    given = {name: value for name, value in entry.model_dump().items() if value is not None}
    values: dict[str, Any] = {}
    if entry.node is not None:
        known = read_catalogue("clusters.yaml")["nodes"]
        if entry.node not in known:
            raise BadCluster(source, f"{field}.node: {unknown('node', entry.node, known)}")
        values = dict(known[entry.node])
    values |= given
    for name in ("gpu", "gpus", "network", "nics", "nic_gbit_per_s"):
        if name not in values:
            raise BadCluster(source, f"{field}.{name}: is missing (or name a node of the catalogue, node: dgx-h100)")
    for name in ("network", "link_kind"):
        if name in values:
            _check_kind(source, f"{field}.{name}", values[name])
    return node_of(entry.node or field, values, gpu=gpus.get(values["gpu"]) or _known_gpu(source, field, values["gpu"]))


def _known_gpu(source: str, field: str, name: str) -> Gpu:
    try:
        return find_gpu(name)
    except UnknownName as error:
        raise BadCluster(source, f"{field}.gpu: {error}") from None


def _check_kind(source: str, field: str, kind: str) -> None:
    try:
        fabric(kind)
    except UnknownName as error:
        raise BadCluster(source, f"{field}: {error}") from None
