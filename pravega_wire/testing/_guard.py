"""Kills the servers of a process that has died, and deletes their data.

It runs as a child process with a pipe as its input. Lines ``+PID`` and ``-PID`` add and remove processes to
kill, ``+/DIRECTORY`` and ``-/DIRECTORY`` directories to delete, ``+{JSON}`` and ``-{JSON}`` commands to run
(``run``: the command; ``environment``: variables in addition to this process's). When the pipe ends, because
the parent closed it or died, however suddenly, the remaining processes are killed, directories deleted and
commands run. A parent-death signal would not work: it is tied to the thread that started the child.
"""

import json
import os
import shutil
import signal
import subprocess
import sys


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    watched = []
    for line in sys.stdin:
        what = line[1:].rstrip("\n")
        if line[0] == "+":
            watched.append(what)
        elif what in watched:
            watched.remove(what)
    directories = [what for what in watched if what.startswith("/")]
    commands = [what for what in watched if what.startswith("{")]
    for what in watched:
        if what in directories or what in commands:
            continue
        try:
            os.kill(int(what), signal.SIGCONT)
            os.kill(int(what), signal.SIGKILL)
        except ProcessLookupError:
            continue
    for directory in directories:
        # A process that has just been killed may still create a file.
        for _ in range(10):
            if os.path.isdir(directory):
                shutil.rmtree(directory, ignore_errors=True)
    for what in commands:
        command = json.loads(what)
        subprocess.run(
            command["run"],
            env=os.environ | command["environment"],
            stdin=subprocess.DEVNULL,
            # Otherwise a reader of the dead process's output would also wait for these commands.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )


if __name__ == "__main__":
    main()
