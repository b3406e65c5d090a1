"""Tensor parallelism of a decoder stage, in torch's own styles over DTensor.

Queries, keys, values, gate and up are split by columns, output and down by rows, embedding, head and loss by
vocabulary. With sequence parallelism norms and residuals hold a part of the sequence (Korthikanti et al.
2205.05198). A block's input is gathered once for all projections that read it, so that its gradient is reduced once.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from pipesim.backends.model.decoder import Attention
from pipesim.backends.model.stage import DecoderStage, Embedding
from pipesim.costs.layouts.layout import BadLayout, Layout
from pipesim.costs.models.model import Model


def check_tensor_parallel(model: Model, layout: Layout) -> None:
    """Raises BadLayout where heads, MLP or vocabulary cannot be split over tp."""
    layout.check_model(model)
    if model.vocab % layout.tp:
        works = [str(tp) for tp in range(1, min(model.vocab, 4096) + 1) if model.vocab % tp == 0][:16]
        raise BadLayout(
            f"vocabulary {model.vocab} of {model.name} is not a multiple of tp={layout.tp}",
            f"tp that work: {', '.join(works)}",
        )


def split_tensors(stage: DecoderStage, mesh: DeviceMesh, layout: Layout, *, gather_logits: bool = False) -> None:
    """Make the stage's parameters parts over `mesh` (one dimension, tp), and its inputs and outputs fit.

    gather_logits: the head gives all logits to every rank (generation) instead of its own part (loss).
    """
    hidden: Placement = Shard(1) if layout.sequence_parallel else Replicate()
    plan: dict[str, ParallelStyle] = {}
    if stage.model.embed_tokens is not None:
        plan["model.embed_tokens"] = VocabularyParallel(hidden)
    for number, layer in stage.model.layers.items():
        assert isinstance(layer.self_attn, Attention)
        plan |= _layer_plan(f"model.layers.{number}", layer.self_attn, mesh, hidden, stage)
    if stage.lm_head is not None:
        if layout.sequence_parallel:
            plan["model.norm"] = SequenceParallel(use_local_output=True)
        plan["lm_head"] = ColwiseParallel(
            input_layouts=hidden, output_layouts=Replicate() if gather_logits else Shard(-1)
        )
    parallelize_module(stage, mesh, plan)
    stage.tie()  # the styles have made new parameters


def _layer_plan(
    name: str, attention: Attention, mesh: DeviceMesh, hidden: Placement, stage: DecoderStage
) -> dict[str, ParallelStyle]:
    model = stage.config.model
    whole = PrepareModuleInput(input_layouts=hidden, desired_input_layouts=Replicate(), use_local_output=False)
    keys: ParallelStyle = ColwiseParallel()
    if model.kv_heads < mesh.size():
        keys = Copied()
        wanted = mesh.get_local_rank() * model.kv_heads // mesh.size()
        attention.kv_heads_used = slice(wanted, wanted + 1)
    plan: dict[str, ParallelStyle] = {
        f"{name}.self_attn": whole,
        f"{name}.self_attn.q_proj": ColwiseParallel(),
        f"{name}.self_attn.k_proj": keys,
        f"{name}.self_attn.v_proj": keys,
        f"{name}.self_attn.o_proj": RowwiseParallel(output_layouts=hidden),
        f"{name}.mlp": whole,
        f"{name}.mlp.gate_proj": ColwiseParallel(),
        f"{name}.mlp.up_proj": ColwiseParallel(),
        f"{name}.mlp.down_proj": RowwiseParallel(output_layouts=hidden),
    }
    if isinstance(hidden, Shard):
        plan[f"{name}.input_layernorm"] = SequenceParallel(use_local_output=True)
        plan[f"{name}.post_attention_layernorm"] = SequenceParallel(use_local_output=True)
    if attention.norms_heads:
        plan[f"{name}.self_attn.q_norm"] = SequenceParallel(sequence_dim=2, use_local_output=True)
        plan[f"{name}.self_attn.k_norm"] = SequenceParallel(sequence_dim=2, use_local_output=True)
    return plan


class Copied(ParallelStyle):
    """A projection that every rank has whole and uses a part of: keys and values of fewer heads than ranks.

    Each rank's gradient is that of its part alone; its placement says so, until the parts are added up.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(module, device_mesh, None, None, _copied_output)  # type: ignore[arg-type]


def _copied_output(module: nn.Module, outputs: Any, mesh: DeviceMesh) -> Tensor:
    assert isinstance(outputs, DTensor)
    return outputs.to_local(grad_placements=[Partial()])


class VocabularyParallel(ParallelStyle):
    """An embedding of which each rank has some rows: others' tokens give zeros, and the sum over ranks is the result.

    Unlike with torch's row-wise style the gradient is of this rank's rows only.
    """

    def __init__(self, output: Placement) -> None:
        super().__init__()
        self.output = output

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        assert isinstance(module, Embedding)
        split = nn.Parameter(distribute_tensor(module.weight, device_mesh, [Shard(0)]))
        module.weight = split
        module.first_row = device_mesh.get_local_rank() * (split.shape[0] // device_mesh.size())
        module.forward = partial(_look_up, module, device_mesh, self.output)  # type: ignore[method-assign]
        return module


def _look_up(module: Embedding, mesh: DeviceMesh, output: Placement, tokens: Tensor) -> Tensor:
    weight = module.weight
    assert isinstance(weight, DTensor)
    rows = weight.to_local()
    at = tokens - module.first_row
    mine = (at >= 0) & (at < rows.shape[0])
    found = nn.functional.embedding(at * mine, rows) * mine[..., None]
    found = found if module.dtype is None else found.to(module.dtype)
    spread = DTensor.from_local(found, mesh, [Partial()], run_check=False)
    return spread.redistribute(placements=[output]).to_local()


def part_of(weight: nn.Parameter, whole: Tensor) -> Tensor:
    """What this rank holds of a whole value: of a weight that is split over tp alone."""
    if not isinstance(weight, DTensor):
        return whole
    (placement,) = weight.placements
    if not isinstance(placement, Shard):
        return whole
    return torch.chunk(whole, weight.device_mesh.size(), placement.dim)[weight.device_mesh.get_local_rank()]
