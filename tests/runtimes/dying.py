"""A `memtier` with a bad day, run in its place: ``dying.py DAY MARK -- COMMAND... [ARGUMENTS]``.

It has its day once, when the file MARK is not there, and is the command itself from then on.
Days: crash (at start), hang (never answers), full (can write nothing), or a word: it is killed with
SIGKILL just after a request with that word in it came.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path


def main() -> None:
    """Have the day, or be the command."""
    day, mark = sys.argv[1], Path(sys.argv[2])
    command = sys.argv[4:]
    if "serve" not in command or mark.exists():
        os.execvp(command[0], command)
    if day == "crash":
        sys.exit(3)
    if day == "hang":
        signal.pause()
    if day == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        os.execvp(command[0], command)
    child = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert child.stdin is not None
    threading.Thread(target=lambda: os._exit(child.wait()), daemon=True).start()
    for line in sys.stdin.buffer:
        child.stdin.write(line)
        child.stdin.flush()
        if day.encode() in line:
            mark.touch()
            time.sleep(0.01)  # into the middle of it
            child.kill()
            os.kill(os.getpid(), signal.SIGKILL)
    child.stdin.close()
    child.wait()


if __name__ == "__main__":
    main()
