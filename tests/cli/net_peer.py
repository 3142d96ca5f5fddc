"""A peer on a NIC's wire that means no good: net_peer.py SOCKET WHAT [SOCKET].

It connects to SOCKET, on which each frame has its length in front (32 bits, big-endian), waits for
the first frame from there, and does WHAT, one or several with a + between them:
  lengths   sends frames of 0 to 65,550 bytes and more, of every 61st length, reading what comes
  flood     sends 5,000 short frames as fast as they are taken, and never reads
  garbage   sends what are no frames
  gone      ends at once
  all       sends frames of every length, the longest first, and short ones until the machine ends
  lossy     passes frames on between the two sockets, but loses one in five each way
Then it prints how many frames it has sent.
"""

import random
import select
import socket
import struct
import sys

LONGEST = 65550


def packet(length):
    """For everybody, of a protocol that nobody speaks."""
    head = b"\xff" * 6 + b"\x52\x54\x00\x00\x00\x99" + b"\x88\xb5"
    return struct.pack(">I", length) + (head + bytes(length))[:length]


def drain(wire):
    while select.select([wire], [], [], 0)[0] and wire.recv(1 << 16):
        pass


def connected(path):
    wire = socket.socket(socket.AF_UNIX)
    wire.connect(path)
    return wire


def lossy(paths):
    """Until one of the two ends. The same frames of a direction are lost each time."""
    wires = [connected(path) for path in paths]
    waiting = {wire: b"" for wire in wires}
    chance = {wire: random.Random(number) for number, wire in enumerate(wires)}
    passed, lost = 0, 0
    while True:
        for wire in select.select(wires, [], [])[0]:
            got = wire.recv(1 << 16)
            if not got:
                print("passed on", passed, "lost", lost, flush=True)
                return
            other = wires[wire is wires[0]]
            data = waiting[wire] + got
            while len(data) >= 4 and len(data) >= 4 + (size := struct.unpack(">I", data[:4])[0]):
                if chance[wire].random() < 0.2:
                    lost += 1
                else:
                    passed += 1
                    try:
                        other.sendall(data[: 4 + size])
                    except OSError:
                        pass  # it has powered off; this one may still have something to do
                data = data[4 + size :]
            waiting[wire] = data


def main():
    path, what = sys.argv[1], sys.argv[2].split("+")
    if "lossy" in what:
        return lossy([path, sys.argv[3]])
    wire = connected(path)
    wire.recv(1 << 16)
    sent = 0
    if "lengths" in what:
        for length in [*range(0, LONGEST, 61), LONGEST, LONGEST + 1, 1 << 20]:
            wire.sendall(packet(length))
            sent += 0 < length <= LONGEST
            drain(wire)
    if "all" in what:
        for length in range(LONGEST, -1, -1):
            wire.sendall(packet(length))
            sent += 1
            drain(wire)
        print("sent", sent, flush=True)
        try:
            while True:
                wire.sendall(packet(60))
                drain(wire)
        except OSError:
            return
    if "flood" in what:
        for _ in range(5000):
            wire.sendall(packet(60))
            sent += 1
    if "garbage" in what:
        random.seed(1)
        for _ in range(300):
            wire.sendall(random.randbytes(random.randrange(1, 3000)))
            sent += 1
    print("sent", sent, flush=True)
    if "gone" not in what:
        while wire.recv(1 << 16):
            pass


main()
