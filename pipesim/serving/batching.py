"""How steps are made up: which requests decode, which prompts are read, who waits and who is preempted."""

from __future__ import annotations

from collections import deque

from pipesim.serving.cache import Cache
from pipesim.serving.group import Group, Piece, Rules, Step
from pipesim.serving.requests import Requests

_SPARE = 0.01  # of the blocks: what a new request leaves free while others run, as vLLM's watermark


class Batcher:
    """Requests, cache and groups of one instance. It knows of time only what it is told."""

    def __init__(self, requests: Requests, rules: Rules, groups: int) -> None:
        count = len(requests)
        self.rules, self.cache = rules, Cache(rules.blocks, rules.block_tokens)
        self.groups = [Group(rules.block_tokens) for _ in range(groups)]
        self.waiting: deque[int] = deque()
        self.running = self.done = self.preemptions = 0
        self.prompt: list[int] = requests.prompt.tolist()
        self.output: list[int] = requests.output.tolist()
        self.made = [0] * count  # tokens when it last began to decode, or was preempted
        self.began = [-1] * count  # step of its group with which it began to decode; -1: it does not decode
        self.member = [-1] * count  # its group; -1: none
        self.admitted_s = [-1.0] * count
        self.first_s = [-1.0] * count
        self.done_s = [-1.0] * count
        self.preempted = [0] * count

    def make_up(self, number: int, time: float) -> Step | None:
        """The next step of a group, or None where it has nothing to do."""
        group, rules = self.groups[number], self.rules
        group.reading, group.stepping = [], 0
        if not rules.chunked:
            pieces = self._read_prompts(number, time, rules.tokens)
            if pieces:
                return Step(0, 0, pieces, len(group.reading))
        if rules.prefilled:
            self._take_in(number, time)
        full = self._grow(number)
        group.stepping = group.decoding
        pieces = ()
        if rules.chunked:
            pieces = self._read_prompts(number, time, rules.tokens - group.decoding, admit=not full)
        if not group.stepping and not pieces:
            return None
        return Step(group.stepping, group.cached, pieces, len(group.reading))

    def _read_prompts(self, number: int, time: float, room: int, *, admit: bool = True) -> tuple[tuple[int, int], ...]:
        """Pieces of prompts for a step with room for so many tokens: of those begun, then of new requests."""
        group = self.groups[number]
        pieces: list[tuple[int, int]] = []
        for piece in group.prompts:
            room -= self._read(piece, room, pieces, group.reading)
        while admit and room > 0 and self._admits(group, room) and not self._comes_read(self.waiting[0]):
            piece = self._admit(number, self.waiting.popleft(), time)
            group.prompts.append(piece)
            room -= self._read(piece, room, pieces, group.reading)
        return tuple(pieces)

    def _take_in(self, number: int, time: float) -> None:
        """Let requests in that come with their caches: they decode at once."""
        group = self.groups[number]
        while (
            group.decoding < self.rules.tokens
            and self._admits(group, self.rules.tokens)
            and self._comes_read(self.waiting[0])
        ):
            request = self._admit(number, self.waiting.popleft(), time).request
            self.made[request] = 1
            self.first_s[request] = time
            self._decode(group, request)

    def _comes_read(self, request: int) -> bool:
        """Whether its cache comes with it; not once it was preempted."""
        return self.rules.prefilled and not self.made[request]

    def finish(self, number: int, end_s: float) -> int:
        """The group's step ended and its tokens are there; how many requests are done with it."""
        group, before = self.groups[number], self.done
        if group.stepping:
            group.cached += group.decoding
            for request in group.ends.pop(group.step, ()):
                self._leave(group, request)
                self._end(request, end_s)
            group.step += 1
            group.stepping = 0
        for piece in group.reading:
            group.prompts.remove(piece)
            self._first_token(group, piece, end_s)
        group.reading = []
        return self.done - before

    def _read(self, piece: Piece, room: int, pieces: list[tuple[int, int]], complete: list[Piece]) -> int:
        """Read as much of a prompt as there is room for; a whole one where prompts are not cut."""
        left = piece.tokens - piece.done
        new = min(left, room) if self.rules.chunked else left
        if new <= 0:
            return 0
        pieces.append((piece.done, new))
        piece.done += new
        if piece.done == piece.tokens:
            complete.append(piece)
        return new

    def _admits(self, group: Group, room: int) -> bool:
        """Whether the group may take the first of the queue now."""
        if not self.waiting or self.running >= self.rules.batch:
            return False
        share = -(-(self.running + len(self.waiting)) // len(self.groups))
        if group.requests >= share:
            return False
        request = self.waiting[0]
        tokens = self.prompt[request] + self.made[request]
        if not self.rules.chunked and tokens > room and room < self.rules.tokens:
            return False
        spare = int(_SPARE * self.rules.blocks) if self.running else 0
        return self._blocks(request) + spare <= self.cache.free

    def _blocks(self, request: int) -> int:
        """Blocks that a request is given at its start."""
        last = self.prompt[request] + self.output[request] - 1
        if self.rules.reserves:
            return self.cache.needed(last)
        return self.cache.needed(min(last, self.prompt[request] + self.made[request]))

    def _admit(self, number: int, request: int, time: float) -> Piece:
        """Give a request its blocks and a place in the group; its prompt, to be read."""
        self.cache.take(self._blocks(request))
        self.running += 1
        self.member[request] = number
        if self.admitted_s[request] < 0:
            self.admitted_s[request] = time
        self.groups[number].order.append(request)
        return Piece(request, self.prompt[request] + self.made[request])

    def _first_token(self, group: Group, piece: Piece, end_s: float) -> None:
        """A prompt was read whole: its next token is there."""
        request = piece.request
        self.made[request] += 1
        if self.first_s[request] < 0:
            self.first_s[request] = end_s
        if self.made[request] == self.output[request]:
            self.running -= 1
            self.cache.give_back(self.cache.needed(self.prompt[request] + self.output[request] - 1))
            self._end(request, end_s)
        else:
            self._decode(group, request)

    def _decode(self, group: Group, request: int) -> None:
        """From its group's next step on the request decodes."""
        stored = self.prompt[request] + self.made[request] - 1
        self.began[request] = group.step
        group.decoding += 1
        group.cached += stored
        group.grows[(group.step - stored) % self.rules.block_tokens] += 1
        last = group.step + self.output[request] - self.made[request] - 1
        group.ends.setdefault(last, []).append(request)

    def _leave(self, group: Group, request: int) -> None:
        """Take a decoding request out of its group, after `group.step` was counted into what is cached, and free
        its blocks."""
        stored = self.prompt[request] + self.output[request] - 1
        first = self.prompt[request] + self.made[request] - 1
        group.decoding -= 1
        group.cached -= stored
        group.grows[(self.began[request] - first) % self.rules.block_tokens] -= 1
        self.running -= 1
        self.cache.give_back(self.cache.needed(stored))

    def _end(self, request: int, end_s: float) -> None:
        self.done_s[request] = end_s
        self.member[request] = self.began[request] = -1
        self.done += 1

    def _grow(self, number: int) -> bool:
        """Take the blocks that decoding requests need for their next token, from the last admitted of the group where
        none are free; whether any request lost its own."""
        if self.rules.reserves:
            return False
        group, full = self.groups[number], False
        while group.grows[group.step % self.rules.block_tokens] > self.cache.free:
            self._preempt(number)
            full = True
        self.cache.take(group.grows[group.step % self.rules.block_tokens])
        return full

    def _preempt(self, number: int) -> None:
        """Send the request admitted last back to the head of the queue; its cache is lost and read again later."""
        group = self.groups[number]
        request = group.order.pop()
        while self.member[request] != number:  # has left already
            request = group.order.pop()
        if self.began[request] >= 0:
            self._stop_decoding(group, request)
        else:
            piece = next(piece for piece in group.prompts if piece.request == request)
            group.prompts.remove(piece)
            self.cache.give_back(self.cache.needed(piece.tokens))
        self.member[request] = self.began[request] = -1
        self.running -= 1
        self.preemptions += 1
        self.preempted[request] += 1
        self.waiting.appendleft(request)

    def _stop_decoding(self, group: Group, request: int) -> None:
        """Take a request out in the middle of its output."""
        first = self.prompt[request] + self.made[request] - 1
        steps = group.step - self.began[request]
        group.ends[group.step - steps + self.output[request] - self.made[request] - 1].remove(request)
        group.decoding -= 1
        group.cached -= first + steps
        group.grows[(self.began[request] - first) % self.rules.block_tokens] -= 1
        self.cache.give_back(self.cache.needed(first + steps))
        self.made[request] += steps
