"""A folder of small files that both sides of a job see although they are on different hosts: what one side writes into its
own appears in the other's, whole. Between two processes of one host a link does the same."""

import contextlib
import os
import secrets
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from pathlib import Path

PATIENCE = 20  # s, for the other side to connect


class Mirror:
    """The producer's side listens on `address`; `invitation` tells the consumer where, and the key by which each proves
    itself (HMAC). turn() carries what is new, without waiting."""

    def __init__(self, address=None):
        self.listener = self.invitation = self.peer = None
        if address:
            key = secrets.token_bytes(32)
            self.listener = Listener((address, 0), authkey=key)
            self.listener._listener._socket.settimeout(PATIENCE)
            self.invitation = [*self.listener.address, key.hex()]

    def meet(self, folder, invitation=None):
        """Both call it. `folder`: this side's, which exists from now on."""
        self.folder, self.seen = Path(folder), {}
        self.folder.mkdir(exist_ok=True)
        if invitation:
            self.peer = Client(tuple(invitation[:2]), authkey=bytes.fromhex(invitation[2]))
        else:
            while self.peer is None:
                with contextlib.suppress(AuthenticationError, EOFError, ConnectionError):  # not the consumer
                    self.peer = self.listener.accept()
            self.listener.close()

    def turn(self):
        if self.peer is None:
            return
        try:
            while self.peer.poll():
                name, content = self.peer.recv_bytes().split(b"\0", 1)
                part, file = self.folder / ".part", self.folder / os.path.basename(name.decode())
                part.write_bytes(content)
                self.seen[file.name] = self.version(part)
                part.rename(file)
            for file in self.folder.iterdir():
                if file.is_file() and file.suffix != ".part" and file.name != ".part":
                    if self.seen.get(file.name) != (version := self.version(file)):
                        self.seen[file.name] = version
                        self.peer.send_bytes(file.name.encode() + b"\0" + file.read_bytes())
        except (EOFError, OSError):  # the other host is gone: the suite sees that itself
            self.peer = None

    @staticmethod
    def version(file):
        about = file.stat()
        return about.st_ino, about.st_mtime_ns
