"""Separate pools: some instances only read prompts, others only decode, and caches are sent from one to the other.

A prompt's cache leaves as soon as its last layer is read, over the links between the two instances, one after the
other. It waits for its turn there, and for room in the decoding instance in the queue of that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pipesim.costs.communication.p2p import p2p_seconds
from pipesim.costs.layouts.layout import BadLayout
from pipesim.serving.build import instance_of, rules_of
from pipesim.serving.deployment import Deployment
from pipesim.serving.memory import memory_of
from pipesim.serving.requests import Floats, Requests
from pipesim.serving.results import PerRequest, served
from pipesim.serving.serve import Service, check
from pipesim.serving.simulator import Progress, Run, run


@dataclass(frozen=True, eq=False)
class Pools:
    """Two deployments of one model on one cluster: the first devices read prompts, the next ones decode."""

    prefill: Deployment
    decode: Deployment

    def __post_init__(self) -> None:
        gpus, have = self.prefill.gpus + self.decode.gpus, self.decode.cluster.devices
        if gpus > have:
            raise BadLayout(
                f"{self.prefill.gpus} GPUs for prompts and {self.decode.gpus} for decoding are {gpus}, "
                f"but {self.decode.cluster.name} has {have}",
                f"e.g. {have - have // 2} and {have // 2} work",
            )

    @property
    def gpus(self) -> int:
        """GPUs of both pools."""
        return self.prefill.gpus + self.decode.gpus

    def transfer_seconds(self, prompt: int, *, source: int, target: int) -> float:
        """Time to send the cache of a prompt from one instance to another: every GPU sends its share at once."""
        share = max(stage.token for stage in memory_of(self.prefill)) * prompt
        return p2p_seconds(
            self.prefill.cluster,
            self.prefill.devices(0, source)[0],
            self.decode.devices(0, target)[0],
            share,
        )


def pools_of(prefill: Deployment, decode: Deployment) -> Pools:
    """Pools side by side on one cluster."""
    return Pools(prefill, replace(decode, first_device=prefill.gpus))


def serve_apart(pools: Pools, requests: Requests, *, progress: Progress | None = None, keep: int = 0) -> Service:
    """Simulate all requests through both pools. Raises ModelTooLarge, PromptTooLong."""
    reading, rules = rules_of(pools.prefill), replace(rules_of(pools.decode), prefilled=True)
    check(requests, rules, pools.decode.most_context, pools.decode.model.name)
    readers = [
        run(_prompts(requests, copy, pools.prefill.replicas), instance_of(pools.prefill, replica=copy), reading,
            progress=progress)
        for copy in range(min(pools.prefill.replicas, len(requests)))
    ]  # fmt: skip
    sent = _transfers(pools, requests, readers)
    order = np.argsort(sent, kind="stable")
    order = order[requests.output[order] > 1]  # the others are done with their first token
    copies = pools.decode.replicas
    parts = [part for copy in range(copies) if len(part := order[order % copies == copy])]
    decoders = [
        run(Requests(sent[part], requests.prompt[part], requests.output[part]),
            instance_of(pools.decode, replica=int(part[0]) % copies), rules, progress=progress, keep=keep)
        for part in parts
    ]  # fmt: skip
    each = _together(requests, readers, decoders, parts)
    runs = (*readers, *decoders)
    return Service(served(runs, gpus=pools.gpus, each=each), runs, rules)


def _prompts(requests: Requests, copy: int, copies: int) -> Requests:
    part = requests.part(copy, copies)
    return replace(part, output=np.ones_like(part.output))


def _transfers(pools: Pools, requests: Requests, readers: Sequence[Run]) -> Floats:
    """When the cache of each request is with its decoding instance."""
    sent = np.zeros(len(requests))
    for copy, reader in enumerate(readers):
        numbers = np.arange(copy, len(requests), pools.prefill.replicas)
        ready = np.asarray(reader.batcher.done_s)
        free = 0.0
        for index in np.argsort(ready, kind="stable"):
            request = int(numbers[index])
            target = request % pools.decode.replicas
            free = max(free, float(ready[index])) + pools.transfer_seconds(
                int(requests.prompt[request]), source=copy, target=target
            )
            sent[request] = free
    return sent


def _together(
    requests: Requests, readers: Sequence[Run], decoders: Sequence[Run], parts: Sequence[NDArray[np.int64]]
) -> PerRequest:
    """What each request saw: its first token from the one pool, its last from the other."""
    count = len(requests)
    started, first, done = np.zeros(count), np.zeros(count), np.zeros(count)
    for copy, reader in enumerate(readers):
        mine = slice(copy, count, max(1, len(readers)))
        started[mine] = reader.batcher.admitted_s
        first[mine] = done[mine] = reader.batcher.done_s
    for decoder, part in zip(decoders, parts, strict=True):
        done[part] = decoder.batcher.done_s
    return PerRequest(
        arrived_s=requests.arrival_s, started_s=started, first_s=first, done_s=done,
        prompt=requests.prompt.astype(np.float64), output=requests.output.astype(np.float64),
    )  # fmt: skip
