"""How a model is split over GPUs, and with which batch, precision and memory-saving choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from pipesim.costs.layouts.precision import PRECISIONS, Precision
from pipesim.costs.models.model import Model
from pipesim.errors import PipesimError

Recompute = Literal["none", "selective", "full"]
Attention = Literal["flash", "fused-softmax", "unfused"]
AttentionKernel = Literal["flash", "flash1", "flash2", "triton", "torch"]
Vocabulary = Literal["ends", "stages", "interlaced"]
ContextComm = Literal["ring", "all-to-all", "all-gather"]
SplitRule = Literal[
    "even",
    "ends-one-fewer",
    "embedding-as-layer",
    "embedding-and-loss-as-layers",
    "balanced",
    "cost-threshold",
]
ENDS_ARE_LAYERS = ("ends-one-fewer", "embedding-as-layer", "embedding-and-loss-as-layers")
RECOMPUTE_MODULES = ("core_attention", "norms", "mlp_activation", "mlp")
AXES = ("tp", "cp", "ep", "dp", "pp")


@dataclass(eq=False)
class BadLayout(PipesimError):
    """A layout that breaks a rule, on its own or for this model or this number of GPUs."""

    problem: str
    works: str

    def __str__(self) -> str:
        return f"{self.problem}; {self.works}"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Degrees of parallelism and what goes with them: tp · cp · dp · pp GPUs, ep within them."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    expert_tp: int | None = None
    """Tensor parallelism inside an expert; None = as `tp`."""
    virtual: int = 1
    """Model chunks (virtual stages) on each pipeline rank."""
    sequence_parallel: bool = False
    zero_stage: int = 0
    recompute: Recompute = "none"
    recompute_layers: int | None = None
    """How many layers of each stage are recomputed; None = all of them."""
    recompute_modules: tuple[str, ...] = ("core_attention",)
    """What selective recomputation repeats: of "core_attention", "norms", "mlp_activation" and "mlp"."""
    precision: str = "bf16"
    attention: Attention = "flash"
    attention_kernel: AttentionKernel = "flash"
    """Which "flash" it is: the GPU vendor's best, FlashAttention 1 or 2, one in Triton; "torch": "unfused" in fp32."""
    eager_norm: bool = False
    """RMSNorm as separate kernels."""
    micro_batch: int = 1
    global_batch: int = 1
    seq: int = 2048
    split: SplitRule | tuple[int, ...] = "even"
    """How layers fall to stages: a rule of `split.py`, or the number of layers of each stage."""
    vocabulary: Vocabulary = "ends"
    """Where embedding and head are: on the first and last stage, or a slice of them on every stage."""
    vocabulary_over_tp: bool = True
    """Embedding and head are split over the tensor-parallel ranks, as in Megatron-LM."""
    context_comm: ContextComm = "ring"
    rank_order: str = "tp-cp-ep-dp-pp"
    """Which axis has neighbouring ranks (first) and which the farthest (last), as in Megatron-LM."""
    framework: str = "megatron"

    def __post_init__(self) -> None:
        _check_counts(self)
        _check_choices(self)
        _check_batch(self)
        _check_experts(self)

    @property
    def gpus(self) -> int:
        """GPUs in the job."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def stages(self) -> int:
        """Stages of the model: pipeline ranks × chunks on each."""
        return self.pp * self.virtual

    @property
    def microbatches(self) -> int:
        """Microbatches of one step through one pipeline."""
        return self.global_batch // (self.dp * self.micro_batch)

    @property
    def tokens(self) -> int:
        """Tokens of one microbatch on one rank: micro batch × its share of the sequence."""
        return self.micro_batch * self.seq // self.cp

    @property
    def tokens_per_step(self) -> int:
        """Tokens of the whole job in one step."""
        return self.global_batch * self.seq

    @property
    def sequence_shards(self) -> int:
        """Into how many parts norms and residuals are split: tp with sequence parallelism, else 1."""
        return self.tp if self.sequence_parallel else 1

    @property
    def expert_shards(self) -> int:
        """Tensor-parallel ranks that share one expert."""
        return self.tp if self.expert_tp is None else self.expert_tp

    @property
    def expert_data(self) -> int:
        """Replicas of each expert: ranks that reduce an expert's gradient together."""
        return self.tp * self.cp * self.dp // (self.expert_shards * self.ep)

    @property
    def number_format(self) -> Precision:
        """Bytes and names that the precision stands for."""
        return PRECISIONS[self.precision]

    def check_gpus(self, gpus: int) -> None:
        """Raise unless the layout fills exactly `gpus` GPUs."""
        if self.gpus == gpus:
            return
        rest = self.tp * self.cp * self.pp
        works = f"dp={gpus // rest} works" if gpus % rest == 0 else f"{_nearest_multiples(gpus, rest)} GPUs work"
        raise BadLayout(
            f"tp={self.tp} · pp={self.pp} · dp={self.dp} · cp={self.cp} = {self.gpus} GPUs, not {gpus}", works
        )

    def check_model(self, model: Model) -> None:
        """Raise unless this model can be split this way."""
        _check_heads(self, model)
        places = model.layers + (2 if self.split in ENDS_ARE_LAYERS else 0)
        if places < self.stages and not isinstance(self.split, tuple):
            stages = f"pp={self.pp} × virtual={self.virtual} = {self.stages} stages"
            raise BadLayout(f"{model.layers} layers cannot fill {stages}", f"at most {places} stages work")
        if isinstance(self.split, tuple) and sum(self.split) != model.layers:
            raise BadLayout(
                f"layers per stage {list(self.split)} add up to {sum(self.split)}, "
                f"but {model.name} has {model.layers} layers",
                f"the sum must be {model.layers}",
            )
        experts = model.experts.count if model.experts else 1
        if experts % self.ep:
            raise BadLayout(f"{experts} experts cannot be split over ep={self.ep}", _divisor_hint("ep", experts))


_COUNTS = ("tp", "pp", "dp", "cp", "ep", "virtual", "micro_batch", "global_batch", "seq")
_MOST = 1 << 30


def _check_counts(layout: Layout) -> None:
    for name in _COUNTS:
        value = getattr(layout, name)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
            raise BadLayout(f"{name}={value!r} must be a whole number", f"from 1 to {_MOST}")
    if layout.zero_stage not in (0, 1, 2, 3):
        raise BadLayout(f"zero_stage={layout.zero_stage!r} is not a ZeRO stage", "0, 1, 2 and 3 work")
    for name in ("recompute_layers", "expert_tp"):
        value = getattr(layout, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise BadLayout(f"{name}={value!r} must be a whole number", "0 and more work, and leaving it out")
    if isinstance(layout.split, tuple):
        if len(layout.split) != layout.stages:
            raise BadLayout(
                f"layers per stage {list(layout.split)} are {len(layout.split)} numbers "
                f"for pp={layout.pp} × virtual={layout.virtual} = {layout.stages} stages",
                f"give {layout.stages} numbers",
            )
        if any(n < 0 for n in layout.split):
            raise BadLayout(f"layers per stage {list(layout.split)}", "must be whole numbers of at least 0")


def _check_choices(layout: Layout) -> None:
    choices: dict[str, tuple[str, ...]] = {
        "recompute": get_args(Recompute),
        "attention": get_args(Attention),
        "attention_kernel": get_args(AttentionKernel),
        "vocabulary": get_args(Vocabulary),
        "context_comm": get_args(ContextComm),
        "precision": tuple(PRECISIONS),
    }
    if not isinstance(layout.split, tuple):
        choices["split"] = get_args(SplitRule)
    unknown = [name for name in layout.recompute_modules if name not in RECOMPUTE_MODULES]
    if unknown:
        raise BadLayout(
            f"recompute_modules={list(layout.recompute_modules)} has {unknown[0]!r}",
            f"known: {', '.join(RECOMPUTE_MODULES)}",
        )
    for name, known in choices.items():
        if getattr(layout, name) not in known:
            raise BadLayout(f"{name}={getattr(layout, name)!r} is not known", f"known: {', '.join(known)}")
    if sorted(layout.rank_order.split("-")) != sorted(AXES):
        raise BadLayout(f"rank_order={layout.rank_order!r}", f"must name each of {', '.join(AXES)} once")


def _check_batch(layout: Layout) -> None:
    unit = layout.dp * layout.micro_batch
    if layout.global_batch % unit:
        raise BadLayout(
            f"global_batch={layout.global_batch} is not a multiple of "
            f"dp={layout.dp} × micro_batch={layout.micro_batch} = {unit}",
            f"{_nearest_multiples(layout.global_batch, unit)} work",
        )
    parts = layout.cp * layout.sequence_shards
    if layout.seq % parts:
        what = f"cp={layout.cp}" + (f" × tp={layout.tp} (sequence parallel)" if layout.sequence_parallel else "")
        raise BadLayout(
            f"seq={layout.seq} cannot be split over {what}", f"{_nearest_multiples(layout.seq, parts)} work"
        )


def _check_experts(layout: Layout) -> None:
    if layout.expert_tp == 0:
        raise BadLayout("expert_tp=0 must be at least 1", f"1 and tp={layout.tp} work")
    room = layout.tp * layout.cp * layout.dp
    if room % layout.expert_shards:
        raise BadLayout(f"expert_tp={layout.expert_shards} does not divide tp·cp·dp={room}", f"tp={layout.tp} works")
    room //= layout.expert_shards
    if room % layout.ep:
        raise BadLayout(f"ep={layout.ep} does not divide tp·cp·dp / expert_tp = {room}", _divisor_hint("ep", room))


def _check_heads(layout: Layout, model: Model) -> None:
    heads = layout.tp * (layout.cp if layout.context_comm == "all-to-all" else 1)
    if model.heads % heads:
        raise BadLayout(
            f"{model.heads} attention heads of {model.name} cannot be split over {heads} ranks",
            _divisor_hint("tp" if heads == layout.tp else "tp · cp", model.heads),
        )
    if model.kv_heads % layout.tp and layout.tp % model.kv_heads:
        raise BadLayout(
            f"{model.kv_heads} key/value heads of {model.name} cannot be split or copied over tp={layout.tp}",
            _divisor_hint("tp", model.kv_heads),
        )
    widths = {model.ffn, model.experts.shared_ffn if model.experts else 0} - {0}
    for width in widths:
        if width % layout.tp:
            raise BadLayout(
                f"MLP width {width} of {model.name} is not a multiple of tp={layout.tp}",
                _divisor_hint("tp", width),
            )


def _nearest_multiples(value: int, unit: int) -> str:
    below = value // unit * unit
    return f"{below} and {below + unit}" if below else str(unit)


def _divisor_hint(name: str, number: int) -> str:
    divisors = [d for d in range(1, min(number, 4096) + 1) if number % d == 0]
    return f"{name} that work: {', '.join(map(str, divisors[:16]))}"
