"""Delay and loss between a veth and a bridge, for kernels without sch_netem: sends every frame on later, or not at all.

    relay.py VETH BRIDGE MILLISECONDS PERCENT READY     runs until it is killed; makes the file READY when it relays

It leaves the veth outside of the bridge, and its TAP device, a port of the bridge, ends with it. Frames travel with their
virtio header, so that large ones (GSO) stay whole and checksums left to the hardware stay right.

Sources: packet(7), linux/if_packet.h PACKET_VNET_HDR; linux/if_tun.h; Documentation/networking/tuntap.rst."""

import collections
import contextlib
import fcntl
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

SOL_PACKET, PACKET_VNET_HDR, ETH_P_ALL = 263, 15, 3
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6 = 1, 2, 4
FRAME = 1 << 17


def open_veth(veth: str) -> socket.socket:
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    raw.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    for size in SO_SNDBUFFORCE, SO_RCVBUFFORCE:
        raw.setsockopt(socket.SOL_SOCKET, size, 1 << 24)
    raw.bind((veth, ETH_P_ALL))
    raw.setblocking(False)
    return raw


def open_tap(name: str) -> int:
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(tap, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)
    return tap


def relay(raw: socket.socket, tap: int, delay: float, loss: float) -> None:
    """Frames in the order of their arrival; `delay` in seconds, `loss` a probability."""
    waiting: collections.deque[tuple[float, bool, bytes]] = collections.deque()  # when, to the veth, frame
    while True:
        patience = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for source in select.select([raw, tap], [], [], patience)[0]:
            with contextlib.suppress(OSError):  # ENETDOWN: the cable was pulled
                if source is raw:
                    frame, (_, _, kind, *_) = raw.recvfrom(FRAME)
                    if kind == socket.PACKET_OUTGOING:
                        continue
                else:
                    frame = os.read(tap, FRAME)
                if random.random() >= loss:
                    waiting.append((time.monotonic() + delay, source is tap, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, to_veth, frame = waiting.popleft()
            with contextlib.suppress(OSError):
                if to_veth:
                    raw.send(frame)
                else:
                    os.write(tap, frame)


def main(veth: str, bridge: str, milliseconds: str, percent: str, ready: str) -> None:
    raw, tap = open_veth(veth), open_tap(f"{veth}t")
    # This machine must not answer for the bridge's address on the veth: what it answers would not be relayed.
    Path(f"/proc/sys/net/ipv4/conf/{veth}/arp_ignore").write_text("1\n")
    subprocess.run(["ip", "link", "set", veth, "nomaster"], check=True)
    subprocess.run(["ip", "link", "set", f"{veth}t", "master", bridge, "up"], check=True)
    Path(ready).touch()
    relay(raw, tap, float(milliseconds) / 1000, float(percent) / 100)


if __name__ == "__main__":
    main(*sys.argv[1:])
