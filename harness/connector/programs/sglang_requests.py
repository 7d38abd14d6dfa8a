"""What SGLang's schedulers call for one request, on one rank of either side: a sender's steps (disaggregation/prefill.py)
and a receiver's (decode.py)."""

import hashlib
import time

import template

AUX = (64, 24)  # bytes of a request's row in the two metadata buffers
ROWS = 64


def pause(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield


class Flow:
    """One request on one rank. step() returns None until it is over."""

    failed = ""

    def __init__(self, rank, row, name, told):
        from sglang.srt.disaggregation.base.conn import KVPoll

        self.rank, self.name, self.options, self.states = rank, name, rank.options, KVPoll
        self.row = row if rank.producer else ROWS - 1 - row  # the sides number theirs for themselves
        self.room = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")
        self.told, (group,) = told, told["groups"]
        self.pages, self.has = template.np.array(group["blocks"], "int32"), len(self.options.get("cached", []))
        self.over, self.flow = None, self.go()

    def step(self):
        if self.over is None:
            try:
                next(self.flow)
            except StopIteration:
                self.over = True
        return self.over

    def row_of(self, index, rows):
        size = AUX[index]
        return memoryview(rows)[self.row * size : (self.row + 1) * size]

    def words(self, index):
        """What a request's row carries: its own name, in as many bytes."""
        return hashlib.shake_256(f"{self.name} {index}".encode()).digest(AUX[index])

    def fail(self, one):
        try:
            one.failure_exception()
        except Exception as error:
            self.failed = f"{self.name}: {type(error).__name__}: {error}"


class Sent(Flow):
    def go(self):
        """What a prefill scheduler calls for one request: PrefillBootstrapQueue, then send_kv_chunk()."""
        for index, rows in enumerate(self.rank.aux):
            self.row_of(index, rows)[:] = self.words(index)
        sender = self.rank.named("Sender")(mgr=self.rank.manager, bootstrap_addr=self.rank.address, bootstrap_room=self.room)
        while (state := sender.poll()) == self.states.Bootstrapping:
            yield
        if self.options.get("aborts") == "consumer":
            yield from pause(1)
        if state != self.states.Failed:
            prefix = sender.pop_decode_prefix_len() // self.rank.pool.page_size
            left = self.pages[prefix:]
            sender.init(len(left), self.row)
            chunk = self.options.get("chunk") or max(len(left), 1)
            for at in range(0, max(len(left), 1), chunk):
                part = left[at : at + chunk]
                if sender.should_send_kv_chunk(len(part), at + chunk >= len(left)):
                    sender.send(part, None, num_kv_tokens=len(part) * self.rank.pool.page_size)
        while (state := sender.poll()) not in (self.states.Success, self.states.Failed):
            yield
        if state == self.states.Failed:
            self.fail(sender)
        else:  # release_kv_cache() in process_disagg_prefill_inflight_queue()
            self.rank.free(self.told, "KVPoll.Success")
            while self.told["name"] not in self.rank.given:
                yield
        sender.clear()


class Received(Flow):
    def go(self):
        """What a decode scheduler calls for one request: DecodePreallocQueue, then DecodeTransferQueue."""
        receiver = self.rank.named("Receiver")(
            mgr=self.rank.manager, bootstrap_addr=self.rank.address, bootstrap_room=self.room
        )
        receiver.init(0)
        prefix = self.has * self.rank.pool.page_size
        receiver.send_metadata(self.pages, self.row, decode_prefix_len=prefix)
        if self.options.get("aborts") == "consumer":
            yield from self.abort(receiver)
            return
        while (state := receiver.poll()) not in (self.states.Success, self.states.Failed):
            yield
        if state == self.states.Failed:
            self.fail(receiver)
        receiver.clear()
        if self.failed:
            return
        for index, rows in enumerate(self.rank.aux):
            if bytes(self.row_of(index, rows)) != self.words(index):
                raise RuntimeError(
                    f"the row of metadata buffer {index} that came with {self.name} is not the one that the prefill sent"
                )

    def abort(self, receiver):
        yield from pause(self.options.get("after", 0.3))
        receiver.abort()
        while not receiver.is_abort_release_safe():
            yield
        receiver.clear()
