"""Tensors between ranks over `torch.distributed`: nothing here waits but for what is needed now.

Each message has a tag of its own, which gloo matches, so that a wrong order waits instead of mixing tensors up.
NCCL knows no tags; there each channel (or each pair of ranks, by the program's policy) has a communicator.
The form of each message goes ahead of it in the first step, and holds in all later ones.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pipesim.backends.execute.failures import in_words
from pipesim.backends.execute.message_form import (
    MOST_TENSORS,
    MessageForm,
    decode,
    form_of_gradients,
    form_of_tree,
)
from pipesim.backends.execute.plan import Message
from pipesim.backends.trees import Tree, flatten
from pipesim.ir.needs import Flow

_FORM_SIZE, _FORM, _SHAPES, _FIRST = range(4)  # tags of one message count from its tag × _STRIDE
_STRIDE = MOST_TENSORS + _FIRST
Channel = tuple[int, int, int]


@dataclass(frozen=True)
class Wires:
    """How this process reaches the others.

    groups: by channel, a process group of its own where the backend needs one.
    ranks: the global rank of each pipeline rank, where several pipelines run side by side; else they are the same.
    dynamic: shapes may change from message to message (types may not).
    watch: note when each transfer is over, on threads that wait for them.
    """

    device: torch.device
    groups: Mapping[Channel, dist.ProcessGroup] = field(default_factory=dict)
    dynamic: bool = False
    watch: bool = False
    ranks: Sequence[int] = ()

    def global_rank(self, rank: int) -> int:
        """Of a pipeline rank, in the whole job."""
        return self.ranks[rank] if self.ranks else rank


@dataclass(eq=False)
class _Pending:
    """A transfer under way."""

    message: Message
    works: list[Any]
    buffers: list[Tensor | None]
    over: threading.Event | None = None
    error: Exception | None = None


@dataclass
class Times:
    """When a transfer was asked for and when it was over, in nanoseconds of this process's clock."""

    posted: int = 0
    over: int = 0


class Transport:
    """One rank's sends and receives."""

    def __init__(self, wires: Wires) -> None:
        self.wires = wires
        self.times: dict[int, Times] = {}
        self._forms: dict[tuple[int, bool], MessageForm] = {}
        self._waiting: dict[Channel, deque[Message]] = {}  # receives asked for, form not known yet
        self._receiving: dict[int, _Pending] = {}
        self._sending: dict[int, _Pending] = {}
        self._watchers: dict[Channel, queue.SimpleQueue[_Pending | None]] = {}

    def start(self, receives: Sequence[Message], sends: Iterable[tuple[Message, Tree]]) -> None:
        """Begin transfers; a send's tree is a stage's outputs or, for a gradient, a list."""
        for message in receives:
            self._times(message).posted = time.perf_counter_ns()
            self._waiting.setdefault(message.channel, deque()).append(message)
            self._post_known(message.channel)
        for message, tree in sends:
            self._times(message).posted = time.perf_counter_ns()
            self._sending[message.op] = self._post_send(message, tree)

    def take(self, message: Message) -> Tree:
        """Wait for a message that was started and is needed now."""
        channel = message.channel
        while message.op not in self._receiving:
            self._post_next(self._waiting[channel].popleft())
            self._post_known(channel)
        pending = self._receiving.pop(message.op)
        self._finish(pending)
        form = self._forms[message.tag, False]
        return pending.buffers if message.flow == Flow.GRADIENT else form.tree(pending.buffers)

    def let_go(self, sent: Iterable[Message]) -> None:
        """Drop sends that are known to have arrived."""
        for message in sent:
            pending = self._sending.pop(message.op, None)
            if pending is not None:
                self._finish(pending)

    def wait_for_sends(self) -> None:
        """Wait until everything sent has arrived."""
        while self._sending:
            self._finish(self._sending.pop(next(iter(self._sending))))

    def message_bytes(self) -> dict[int, int]:
        """Bytes of each message that this rank sends, by its tag."""
        return {tag: form.size_bytes for (tag, outgoing), form in self._forms.items() if outgoing}

    def close(self) -> None:
        """End the watching threads."""
        for watcher in self._watchers.values():
            watcher.put(None)

    def _times(self, message: Message) -> Times:
        return self.times.setdefault(message.op, Times())

    def _post_send(self, message: Message, tree: Tree) -> _Pending:
        pending = _Pending(message, [], [])
        gradient = message.flow == Flow.GRADIENT
        tensors: list[Tensor | None] = tree if gradient else list(flatten(tree)[0])
        form = self._forms.get((message.tag, True))
        if form is None:
            form = form_of_gradients(tensors) if gradient else form_of_tree(tree)
            self._forms[message.tag, True] = form
            self._send_form(message, form, pending)
        fitted = form.fit(tensors, message.text, device=self.wires.device, any_shape=self.wires.dynamic)
        if self.wires.dynamic:
            shapes = [size for tensor in fitted if tensor is not None for size in tensor.shape]
            self._isend(message, torch.tensor([0, *shapes], device=self.wires.device), _SHAPES, pending)
        for number, tensor in enumerate(fitted):
            if tensor is not None:
                self._isend(message, tensor.detach().contiguous(), _FIRST + number, pending)
        return self._watched(pending)

    def _post_known(self, channel: Channel) -> None:
        """Post receives in the channel's order, as far as it is known what will come."""
        waiting = self._waiting[channel]
        while waiting and not self.wires.dynamic and (waiting[0].tag, False) in self._forms:
            message = waiting.popleft()
            buffers = self._forms[message.tag, False].empty(self.wires.device)
            self._receiving[message.op] = self._post_buffers(message, buffers)

    def _post_next(self, message: Message) -> None:
        """Post a receive after waiting for what says its shapes."""
        form = self._forms.get((message.tag, False)) or self._receive_form(message)
        buffers = self._receive_shapes(message, form) if self.wires.dynamic else form.empty(self.wires.device)
        self._receiving[message.op] = self._post_buffers(message, buffers)

    def _receive_shapes(self, message: Message, form: MessageForm) -> list[Tensor | None]:
        count = 1 + sum(len(one.shape) for one in form.tensors if one is not None)
        shapes = self._receive_now(message, torch.empty(count, dtype=torch.int64), _SHAPES)
        sizes = iter(shapes.tolist()[1:])
        return [
            None
            if one is None
            else torch.empty([next(sizes) for _ in one.shape], dtype=one.dtype, device=self.wires.device)
            for one in form.tensors
        ]

    def _post_buffers(self, message: Message, buffers: list[Tensor | None]) -> _Pending:
        pending = _Pending(message, [], buffers)
        for number, buffer in enumerate(buffers):
            if buffer is not None:
                self._irecv(message, buffer, _FIRST + number, pending)
        return self._watched(pending)

    def _send_form(self, message: Message, form: MessageForm, pending: _Pending) -> None:
        data = form.encode()
        device = self.wires.device
        self._isend(message, torch.tensor([len(data)], device=device), _FORM_SIZE, pending)
        self._isend(message, torch.tensor(list(data), dtype=torch.uint8, device=device), _FORM, pending)

    def _receive_form(self, message: Message) -> MessageForm:
        size = self._receive_now(message, torch.empty(1, dtype=torch.int64), _FORM_SIZE)
        data = self._receive_now(message, torch.empty(int(size.item()), dtype=torch.uint8), _FORM)
        form = decode(bytes(data.tolist()))
        self._forms[message.tag, False] = form
        return form

    def _receive_now(self, message: Message, tensor: Tensor, number: int) -> Tensor:
        buffer = tensor.to(self.wires.device)
        pending = _Pending(message, [], [buffer])
        self._irecv(message, buffer, number, pending)
        self._wait(pending)
        return buffer

    def _isend(self, message: Message, tensor: Tensor, number: int, pending: _Pending) -> None:
        with in_words(message):
            tag = message.tag * _STRIDE + number
            work = dist.isend(tensor, self.wires.global_rank(message.target), self._group(message), tag)
        pending.buffers.append(tensor)  # alive until it has arrived
        pending.works.append(work)

    def _irecv(self, message: Message, tensor: Tensor, number: int, pending: _Pending) -> None:
        with in_words(message):
            tag = message.tag * _STRIDE + number
            source = self.wires.global_rank(message.source)
            pending.works.append(dist.irecv(tensor, source, self._group(message), tag))

    def _group(self, message: Message) -> dist.ProcessGroup | None:
        return self.wires.groups.get(message.channel)

    def _finish(self, pending: _Pending) -> None:
        """Wait for a transfer. Raises NoProgress, PeerLost."""
        if pending.over is not None:
            pending.over.wait()
            if pending.error is not None:
                raise pending.error
            return
        self._wait(pending)

    def _wait(self, pending: _Pending) -> None:
        with in_words(pending.message):
            for work in pending.works:
                work.wait()
        self._times(pending.message).over = time.perf_counter_ns()

    def _watched(self, pending: _Pending) -> _Pending:
        if self.wires.watch:
            pending.over = threading.Event()
            channel = pending.message.channel
            if channel not in self._watchers:
                self._watchers[channel] = queue.SimpleQueue()
                threading.Thread(target=self._watch, args=(self._watchers[channel],), daemon=True).start()
            self._watchers[channel].put(pending)
        return pending

    def _watch(self, transfers: queue.SimpleQueue[_Pending | None]) -> None:
        while (pending := transfers.get()) is not None:
            try:
                self._wait(pending)
            except Exception as error:
                pending.error = error
            assert pending.over is not None
            pending.over.set()
