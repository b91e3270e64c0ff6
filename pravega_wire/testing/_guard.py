"""Kills the servers of a process that has died.

Run as a child with a pipe for its input: ``+PID`` and ``-PID`` lines say which processes to watch over.
When the pipe ends, because the parent closed it or died however suddenly, what is left is killed. A
signal bound to the parent's death would not do: it is bound to the thread that started the child.
"""

import os
import signal
import sys


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    watched = []
    for line in sys.stdin:
        pid = int(line[1:])
        if line[0] == "+":
            watched.append(pid)
        elif pid in watched:
            watched.remove(pid)
    for pid in watched:
        try:
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    main()
