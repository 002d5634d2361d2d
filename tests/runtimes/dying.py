"""A `memtier` with a bad day, run in its place: ``dying.py DAY MARK -- COMMAND... [ARGUMENTS]``.

It has its day once, when the file MARK is not there, and is the command itself from then on.
Days: crash (at start), hang (never answers), full (can write nothing), or a word: it is killed with
SIGKILL just after a request with that word in it came.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memtier_plugin.cli import main as cli
from memtier_plugin.server import rpc


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
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # it would be cut off, too
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        os.execvp(command[0], command)
    requests = rpc.read_requests

    def watched(*given: Any) -> Iterator[Any]:
        for request in requests(*given):
            if day in json.dumps(request):
                mark.touch()
                kill = (os.getpid(), signal.SIGKILL)
                threading.Timer(0.01, os.kill, kill).start()  # into the middle of it
            yield request

    rpc.read_requests = watched
    sys.argv = ["memtier", *command[command.index("--home") :]]
    cli.main()


if __name__ == "__main__":
    main()
