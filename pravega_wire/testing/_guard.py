"""Kills the servers of a process that has died, and deletes their data.

Run as a child with a pipe for its input: ``+PID`` and ``-PID`` lines say which processes to watch over,
``+/DIRECTORY`` and ``-/DIRECTORY`` lines which directories, ``+{JSON}`` and ``-{JSON}`` lines which commands
to run (``run``: the command, ``environment``: its variables beside this process's). When the pipe ends,
because the parent closed it or died however suddenly, what is left is killed, deleted and run. A signal bound
to the parent's death would not do: it is bound to the thread that started the child.
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
        # A process that has just been killed may have been about to make one more file.
        for _ in range(10):
            if os.path.isdir(directory):
                shutil.rmtree(directory, ignore_errors=True)
    for what in commands:
        command = json.loads(what)
        subprocess.run(
            command["run"],
            env=os.environ | command["environment"],
            stdin=subprocess.DEVNULL,
            # Whoever reads the dead process's output would otherwise wait for these.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )


if __name__ == "__main__":
    main()
