"""Instances with plain times, and small deployments."""

import numpy as np

from pipesim.costs.clusters.cluster_catalogue import load_cluster
from pipesim.costs.models.model_catalog import load_model
from pipesim.serving.deployment import Deployment
from pipesim.serving.engine import find_engine
from pipesim.serving.formats import cache_bytes, weight_format
from pipesim.serving.instance import Instance
from pipesim.serving.step_costs import StageCosts

MOST = 4096


def flat_instance(*, stages: int, groups: int, step: float = 1.0, token: float = 0.0, hop: float = 0.0) -> Instance:
    """Each stage takes `step` seconds and `token` more for each new token; every edge, also the one back, `hop`."""
    costs = StageCosts(
        tokens_s=step + token * np.arange(MOST + 1),
        comm_s=np.zeros(MOST + 1),
        rows_s=np.zeros(MOST + 1),
        cached_s=0.0,
        windows=(),
        prompts=(),
        value_dim=1,
        place=None,  # type: ignore[arg-type]  # only the attention of prompts asks for it
    )
    hops = tuple(np.full(MOST + 1, hop) for _ in range(stages - 1))
    return Instance(stages=(costs,) * stages, hops_s=hops, back_s=hop, groups=groups)


def deployment(model: str = "llama-3-8b", cluster: str = "dgx-a100:1", **more: object) -> Deployment:
    """A deployment in bf16 on vLLM unless said otherwise."""
    given: dict[str, object] = {
        "weights": weight_format("bf16"), "cache_bytes": cache_bytes("bf16"), "engine": find_engine("vllm")
    }  # fmt: skip
    return Deployment(model=load_model(model), cluster=load_cluster(cluster), **given | more)  # type: ignore[arg-type]
