"""The command 'ditto' for gdb, to be used on a replay of dittovm:

    $ dittovm symbols REC > guest.sym
    $ gdb -x "$(dittovm symbols --gdb-helper)" guest.sym

'ditto when', 'seek', 'checkpoint', 'snapshot', 'events' and 'info' are dittovm's own commands
('monitor ...'). 'ditto task' says what the guest runs, from its memory: 'help ditto' lists them all.

A guest's kernel comes without debug information, so where task_struct keeps things is found out from
the tasks there are; see class Layout.
"""

import struct

import gdb

WINDOW = 16384  # how much of a task_struct is looked at; they have some 10 kB
COMM_BYTES = 16
TASKS_MAX = 64  # as many are compared
KERNEL_HALF = 0xFFFF800000000000


class Unknown(Exception):
    """What was looked for is not in the guest's memory, or not yet."""


def read(address, size):
    try:
        return bytes(gdb.selected_inferior().read_memory(address, size))
    except gdb.MemoryError:
        raise Unknown("the guest has nothing at %#x now" % address)


def read_u64(address):
    return struct.unpack("<Q", read(address, 8))[0]


def symbol(name):
    """The address of a kernel symbol, or None."""
    try:
        value = gdb.parse_and_eval("(unsigned long)&%s" % name)
    except gdb.error:
        return None
    return int(value) % (1 << 64)


def text_of(raw):
    """The name in a comm, or None when the bytes are no name."""
    name, nul, _ = raw.partition(b"\0")
    if not nul or not name or any(c < 0x20 or c == 0x7F for c in name):
        return None
    shown = name.decode("utf-8", "backslashreplace")
    # It is the guest's, and terminals obey more than C0.
    return "".join(c if c.isprintable() else "?" for c in shown)


class Layout:
    """Where task_struct has comm, pid and tgid.

    comm:  init_task is called "swapper", later "swapper/0".
    tasks: the list of all processes. It leads from init_task through others and back, each with a
           name at the same place.
    pid:   followed by tgid, which is the same in the list's tasks. Theirs are 0, 1, 2 (init_task,
           init, kthreadd), then others, none twice. That fits only one place.
    """

    def __init__(self):
        self.init_task = symbol("init_task")
        if self.init_task is None:
            raise Unknown("there is no symbol init_task; load the file of 'dittovm symbols'")
        self.init = read(self.init_task, WINDOW)
        self.comm = max(self.init.find(b"swapper/0\0"), self.init.find(b"swapper\0"))
        if self.comm < 0:
            raise Unknown("init_task holds no name; is this the guest's kernel, and has it started?")
        self.pid = self.find_pid()

    def find_pid(self):
        for tasks in range(0, WINDOW - 16, 8):
            walked = self.walk(tasks)
            if len(walked) < 3:
                continue
            places = self.pid_places(walked)
            if len(places) == 1:
                return places[0]
        return None

    def walk(self, tasks):
        """The first tasks of the list whose head may be at this offset; none if it is no such list."""
        head = self.init_task + tasks
        walked, at, last = [self.init_task], struct.unpack_from("<Q", self.init, tasks)[0], head
        while at != head and len(walked) < TASKS_MAX:
            if at < KERNEL_HALF or at % 8:
                return []
            try:
                link = struct.unpack("<QQ", read(at, 16))
                if link[1] != last or text_of(read(at - tasks + self.comm, COMM_BYTES)) is None:
                    return []
            except Unknown:
                return []
            walked.append(at - tasks)
            at, last = link[0], at
        return walked

    def pid_places(self, walked):
        try:
            known = [self.init] + [read(task, WINDOW) for task in walked[1:3]]
            places = []
            for place in range(0, WINDOW - 8, 4):
                pairs = [struct.unpack_from("<ii", task, place) for task in known]
                if pairs != [(0, 0), (1, 1), (2, 2)]:
                    continue
                pairs += [struct.unpack("<ii", read(task + place, 8)) for task in walked[3:]]
                pids = {pid for pid, tgid in pairs if pid == tgid and pid >= 0}
                if len(pids) == len(walked):
                    places.append(place)
            return places
        except Unknown:
            return []


layout = None  # once it is known


def find_layout():
    global layout
    if layout is None or layout.init_task != symbol("init_task"):
        found = Layout()
        if found.pid is None:
            return found  # the next time there may be more tasks
        layout = found
    return layout


def current_task():
    """The task of the selected thread, which is a CPU.

    It is a per-CPU variable. Not GS but the kernel's table says where those are: that is right in
    user mode and halfway into the kernel, too.
    """
    variable = symbol("current_task")
    if variable is None:
        variable = symbol("pcpu_hot")  # Linux 6.2 to 6.14: its first member
    table = symbol("__per_cpu_offset")
    if variable is None or table is None:
        raise Unknown("there is no symbol current_task; load the file of 'dittovm symbols'")
    thread = gdb.selected_thread()
    cpu = thread.num - 1 if thread else 0
    return read_u64((read_u64(table + 8 * cpu) + variable) % (1 << 64))


def describe_task():
    where = find_layout()
    task = current_task()
    comm = text_of(read(task + where.comm, COMM_BYTES))
    if comm is None:
        raise Unknown("the current task %#x has no name" % task)
    if task == where.init_task:
        return "task %#x: pid 0, comm %s" % (task, comm)
    if where.pid is None:
        return "task %#x: comm %s (its pid was not found)" % (task, comm)
    thread, process = struct.unpack("<ii", read(task + where.pid, 8))
    if thread == process:
        return "task %#x: pid %d, comm %s" % (task, process, comm)
    return "task %#x: pid %d, thread %d, comm %s" % (task, process, thread, comm)


class Ditto(gdb.Command):
    """Commands for a machine that dittovm replays."""

    def __init__(self):
        super().__init__("ditto", gdb.COMMAND_SUPPORT, prefix=True)


class Monitor(gdb.Command):
    """A command that dittovm itself answers."""

    def __init__(self, name, text, moves=False):
        self.__doc__ = text
        self.remote, self.moves = name, moves
        super().__init__("ditto " + name, gdb.COMMAND_SUPPORT, gdb.COMPLETE_NONE)

    def invoke(self, argument, from_tty):
        gdb.execute(("monitor %s %s" % (self.remote, argument)).rstrip(), from_tty)
        if self.moves:
            # gdb does not know that the machine is elsewhere now.
            gdb.execute("maintenance flush register-cache", to_string=True)
            gdb.execute("maintenance flush dcache", to_string=True)
            gdb.execute("frame", from_tty)


class Task(gdb.Command):
    """Show the guest's current task: its pid and its name.
What a thread is: "pid" is the process, "thread" the thread's own number."""

    def __init__(self):
        super().__init__("ditto task", gdb.COMMAND_DATA, gdb.COMPLETE_NONE)

    def invoke(self, argument, from_tty):
        if argument:
            raise gdb.GdbError("ditto task takes no argument")
        if not gdb.selected_inferior().pid:
            raise gdb.GdbError("no guest; connect to one with 'target remote'")
        try:
            print(describe_task())
        except Unknown as error:
            raise gdb.GdbError(str(error))


Ditto()
Monitor("when", "Say at which point of the recording the machine is.")
Monitor("seek", "Go to a point of the recording: ditto seek POINT.", moves=True)
Monitor("checkpoint", "Keep the machine as it is here, to come back to quickly.")
Monitor("snapshot", "Keep the machine as it is at a sync point in the recording: REC@NAME.")
Monitor("events", "List what came into the machine around here.")
Monitor("info", "Say what the recording holds.")
Task()
