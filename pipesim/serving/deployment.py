"""A model served on a cluster: how it is split, in which number formats, by which engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from pipesim.costs.clusters.cluster import Cluster
from pipesim.costs.layouts.layout import BadLayout, Layout
from pipesim.costs.layouts.split import StageLayers, split_layers
from pipesim.costs.models.model import Model
from pipesim.errors import PipesimError
from pipesim.serving.engine import Engine
from pipesim.serving.formats import WeightFormat


@dataclass(eq=False)
class BadDeployment(PipesimError):
    """Numbers of a deployment that cannot work."""

    problem: str
    works: str

    def __str__(self) -> str:
        return f"{self.problem}; {self.works}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Deployment:
    """`replicas` copies of a model, each on tp · pp devices, in the order tp, pp, replica."""

    model: Model
    cluster: Cluster
    tp: int = 1
    pp: int = 1
    replicas: int = 1
    weights: WeightFormat
    cache_bytes: float
    """Of one number in the key/value cache."""
    engine: Engine
    groups: int = 0
    """Groups of requests in flight in one pipeline; 0: as many as it has stages."""
    batch: int = 0
    """Most requests that one replica runs at a time; 0: the engine's usual number."""
    tokens: int = 0
    """Most new tokens in a step; 0: the engine's usual number."""
    chunked: bool = True
    block_tokens: int = 16
    first_device: int = 0
    """Of the cluster."""
    context: int = 0
    """Most tokens of prompt and output together; 0: what the model was made for."""

    def __post_init__(self) -> None:
        self.layout.check_model(self.model)
        if self.layout.gpus > self.cluster.devices:
            raise BadLayout(
                f"tp={self.tp} · pp={self.pp} · replicas={self.replicas} = {self.layout.gpus} GPUs, "
                f"but {self.cluster.name} has {self.cluster.devices}",
                f"up to {self.cluster.devices // (self.tp * self.pp)} replicas fit" if self.layout.gpus
                // self.replicas <= self.cluster.devices else f"up to {self.cluster.devices} GPUs work",
            )  # fmt: skip
        if min(self.groups, self.batch, self.tokens, self.context) < 0 or self.block_tokens < 1:
            raise BadDeployment("negative numbers of groups, requests, tokens or blocks", "0 takes the usual number")
        if self.most_requests > self.most_tokens:
            raise BadDeployment(
                f"a batch of {self.most_requests} needs a step of as many tokens, not {self.most_tokens}",
                f"--max-tokens {self.most_requests} works",
            )

    @property
    def layout(self) -> Layout:
        """The split as a layout of the cost model."""
        return Layout(tp=self.tp, pp=self.pp, dp=self.replicas, global_batch=self.replicas)

    @cached_property
    def stages(self) -> tuple[StageLayers, ...]:
        """Layers of each pipeline stage."""
        return split_layers(self.model, self.layout)

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.layout.gpus

    @property
    def in_flight(self) -> int:
        """Groups of requests in one pipeline."""
        return 1 if self.engine.in_turn else self.groups or self.pp

    @property
    def most_requests(self) -> int:
        """Most requests that one replica runs at a time."""
        return self.batch or self.engine.batch

    @property
    def most_tokens(self) -> int:
        """Most new tokens of a step."""
        return self.tokens or max(self.engine.tokens, self.most_requests)

    @property
    def most_context(self) -> int:
        """Most tokens of prompt and output together; 0: no limit known."""
        return self.context or self.model.max_positions

    def devices(self, stage: int, replica: int = 0) -> tuple[int, ...]:
        """Devices of one stage of one replica."""
        first = self.first_device + (replica * self.pp + stage) * self.tp
        return tuple(range(first, first + self.tp))

    def describe(self) -> str:
        """The deployment in a line."""
        copies = f" · {self.replicas} replicas" if self.replicas > 1 else ""
        groups = f" · {self.in_flight} groups" if self.in_flight > 1 else ""
        return f"tp{self.tp} · pp{self.pp}{copies} · {self.weights.name} weights{groups} · {self.engine.name}"

    def with_split(self, *, tp: int, pp: int, replicas: int) -> Deployment:
        """The same split otherwise."""
        return replace(self, tp=tp, pp=pp, replicas=replicas)
