"""A user at a terminal: command_terminal.py DITTOVM ARGUMENT... Types to the shell that it starts, and exits with its status."""
import fcntl, os, pty, select, struct, sys, termios, time

pid, fd = pty.fork()
if pid == 0:
    time.sleep(0.2)
    os.execvp(sys.argv[1], sys.argv[1:])
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
seen = b""


def until(what):
    """Read on until this is there; what was before is forgotten."""
    global seen
    end = time.time() + 90 * int(os.environ["PATIENCE"])
    while what not in seen:
        ready, _, _ = select.select([fd], [], [], 1)
        data = os.read(fd, 4096) if ready else b""
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        seen += data
        if time.time() > end:
            sys.exit("no %r came" % what)
    seen = seen[seen.index(what) + len(what):]


def type_line(line):
    os.write(fd, line + b"\r")


until(b"# ")
type_line(b"tty; stty size")
until(b"33 99")
until(b"# ")
type_line(b"sleep 1000; echo slept")
until(b"slept")  # the echo of what was typed
time.sleep(1)
os.write(fd, b"\x03")
until(b"# ")
type_line(b"echo status $?.")
until(b"status 130.")
type_line(b"exit 9")
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status))
