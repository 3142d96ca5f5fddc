"""Sourced in gdb behind dittovm-gdb.py: the search for pids, in memory made up here.

Prints one line for each kind of memory; tests/cli/symbols.bats knows what they must be.
"""

import struct

INIT_TASK, TABLE, PER_CPU, VARIABLE = 0xFFFFFFFF82000000, 0xFFFFFFFF83000000, 0xFFFF888000100000, 0x40
COMM, TASKS, PID = 0x900, 0x700, 0x808
memory = {}  # address: one page's bytes


def read(address, size):
    out = b""
    while size:
        page, at = address & ~4095, address & 4095
        if page not in memory:
            raise Unknown("nothing at %#x" % address)
        piece = bytes(memory[page][at : at + min(size, 4096 - at)])
        out, address, size = out + piece, address + len(piece), size - len(piece)
    return out


def write(address, data):
    for i, byte in enumerate(data):
        page = memory.setdefault((address + i) & ~4095, bytearray(4096))
        page[(address + i) & 4095] = byte


def write_u64(address, *values):
    write(address, struct.pack("<%dQ" % len(values), *values))


def symbol(name):
    return {"init_task": INIT_TASK, "current_task": VARIABLE, "__per_cpu_offset": TABLE}.get(name)


def make(names, current, thread=None):
    """A machine with processes 0, 1, 2, 10, 20, ... of these names; `current` is a number in the list.

    thread: the current task is one more thread of that process, with this number.
    """
    global layout
    layout = None
    memory.clear()
    tasks = [INIT_TASK] + [0xFFFF888001000000 + i * 0x8000 for i in range(1, len(names))]
    for i, (task, name) in enumerate(zip(tasks, names)):
        pid = i if i < 3 else 10 * (i - 2)
        write(task, bytes(WINDOW))
        write(task + COMM, name)
        write(task + PID, struct.pack("<ii", pid, pid))
        write(task + 0x100, struct.pack("<ii", i, i + 1))  # nearly
        write_u64(task + 0x200, task + 0x200, task + 0x200)  # empty lists
        write_u64(task + TASKS, tasks[(i + 1) % len(tasks)] + TASKS, tasks[i - 1] + TASKS)
    at = tasks[current]
    if thread:
        pid = read(at + PID + 4, 4)
        at = 0xFFFF888009000000
        write(at, read(tasks[current], WINDOW))
        write(at + PID, struct.pack("<i", thread) + pid)
    write_u64(TABLE, PER_CPU)
    write_u64(PER_CPU + VARIABLE, at)
    return tasks


def show(label):
    try:
        print(label, describe_task().split(": ", 1)[1], sep=": ")
    except Unknown as error:
        print(label, "unknown", error, sep=": ")


NAMES = [b"swapper/0", b"init", b"kthreadd", b"sh", b"a b"]
make(NAMES, 4)
show("process")
make(NAMES, 0)
show("idle")
make(NAMES, 3, thread=17)
show("thread")
make([b"swapper"], 0)
show("first")
make(NAMES[:2], 1)
show("early")
tasks = make(NAMES, 3)
write(tasks[2] + PID, struct.pack("<ii", 7, 7))
show("other numbers")
for i in range(4, 60):  # a list that never comes back
    NAMES.append(b"n%d" % i)
tasks = make(NAMES, 3)
write_u64(tasks[59] + TASKS, tasks[3] + TASKS)
show("loop")
tasks = make(NAMES[:5], 3)
write_u64(tasks[4] + TASKS, 0xFFFF8880F0000000)
show("torn list")
tasks = make(NAMES[:5], 3)
write(tasks[3] + COMM, b"\1\2\3")
show("no name")
make(NAMES[:5], 3)
del memory[TABLE]
show("no table")
make(NAMES[:5], 3)
write(INIT_TASK + COMM, b"x")
show("no kernel")
