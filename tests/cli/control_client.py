#!/usr/bin/env python3
"""control_client.py SOCKET: 500 malformed messages to the control socket of a running machine.

Each is to get an answer, or the end of its connection. Prints how many got which.
"""
import random
import socket
import sys

LINES = [
    b'\n', b'{\n', b'[]\n', b'null\n', b'{"do":"mark"}\n', b'{"do":"mark","text":5}\n', b'{"do":"stop","now":1}\n',
    b'{"do":["stop"]}\n', b'{"do":"mark","text":"\\u0000"}\n', b'{"do":"mark","text":"' + b'x' * 121 + b'"}\n',
    b'{"do":"mark","text":' + b'[' * 900 + b']' * 900 + b'}\n', b'{"do":"snapshot","name":"a b"}\n',
    b'{"do":"stats","id":7}\n', b'{"do":"mark","text":"\xff\xfe"}\n', b'\0' * 100 + b'\n', b'{"do":"stop"}x\n',
]


def message(number, rng):
    kind = number % 4
    if kind == 0:
        return LINES[number // 4 % len(LINES)], False
    if kind == 1:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(1, 300))).replace(b'\n', b' ') + b'\n', False
    if kind == 2:
        return b'{"do":"mark","te'[:rng.randrange(1, 16)], True
    return b'A' * rng.randrange(2100, 100000), False


def main():
    rng = random.Random(25)
    answers = closed = 0
    for number in range(500):
        text, half = message(number, rng)
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(20)
            s.connect(sys.argv[1])
            try:
                s.sendall(text)
                if half:
                    s.shutdown(socket.SHUT_WR)
                got = s.recv(4096)
            except (BrokenPipeError, ConnectionResetError):
                got = b''
        answers += got.startswith(b'{"error"')
        closed += not got
    print(answers, 'answers,', closed, 'closed')
    sys.exit(answers + closed != 500)


main()
