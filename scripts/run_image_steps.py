"""Run the steps of the Dockerfile without Docker: a root of its own for each stage, by chroot.

Where there is no engine this shows that the image would build and work.  A stage's root is empty
but for the system's programs and libraries, which stand in for the base image read-only, and this
Python, in which the steps make virtual environments of their own.  Linux only, as root.

    python scripts/run_image_steps.py          builds, then checks the image's command and web view
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[1]
SYSTEM: Final = ("bin", "sbin", "lib", "lib32", "lib64", "usr", "etc", "dev", "proc", "sys")
PASSED: Final = re.compile(r"PIP_.*|SSL_.*|.*_(?:proxy|PROXY)|LANG")
# Mounts what stands in for the base image, then goes into it as the user of the step.
_ENTER: Final = """
set -e
root=$1 python=$2 user=$3 folder=$4; shift 4
mount --make-rprivate /
for name in $SYSTEM; do
    [ -e "/$name" ] || continue
    mkdir -p "$root/$name"
    mount --rbind "/$name" "$root/$name"
    case $name in dev | proc | sys) ;; *) mount -o remount,bind,ro "$root/$name" ;; esac
done
mkdir -p "$root/$python" "$root/tmp" && chmod 1777 "$root/tmp"
mount --bind "$python" "$root/$python" && mount -o remount,bind,ro "$root/$python"
exec chroot --userspec="$user" "$root" /bin/sh -c 'cd "$0" && exec "$@"' "$folder" "$@"
"""


@dataclass
class Stage:
    """A stage of the build: its root on this machine, and what its instructions set."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    def start(self, command: list[str], **how: object) -> subprocess.Popen[str]:
        """Start a command in the stage's root, with its environment, folder and user."""
        prefix = Path(sys.base_prefix)
        passed = {name: value for name, value in os.environ.items() if PASSED.fullmatch(name)}
        path = f"{prefix}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        environment = {"PATH": path, "HOME": "/tmp", **passed, "SYSTEM": " ".join(SYSTEM)}
        for name, value in self.environment.items():
            environment[name] = value.replace("$PATH", environment["PATH"])
        enter = ["sh", "-c", _ENTER, "enter", self.root, prefix, self.user, self.folder]
        words = [*map(str, ("unshare", "--mount", *enter, *command))]
        return subprocess.Popen(words, env=environment, text=True, **how)  # type: ignore[call-overload,no-any-return]

    def run(self, command: list[str]) -> str:
        """Run a command to its end and return what it printed; leave if it fails."""
        with self.start(command, stdout=subprocess.PIPE) as process:
            output, _ = process.communicate()
        if process.returncode:
            sys.exit(f"{shlex.join(command)} ended with {process.returncode}\n{output}")
        return output


def read_instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield each instruction of a Dockerfile and its arguments, continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", "").splitlines():
        name, _, rest = line.strip().partition(" ")
        yield name.upper(), rest.strip()


def build(dockerfile: str, top: Path) -> Stage:
    """Run a Dockerfile's steps in folders below ``top``, and return the last stage."""
    stages: dict[str, Stage] = {}
    stage = Stage(top)
    for name, rest in read_instructions(dockerfile):
        started = time.monotonic()
        if name == "FROM":
            image, _, alias = rest.partition(" AS ")
            stage = Stage(top / f"stage{len(stages)}")
            stage.root.mkdir()
            stages[alias or image] = stage
        elif name == "WORKDIR":
            stage.folder = rest
            (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif name == "COPY":
            copy(rest, stage, stages)
        elif name == "RUN":
            print(stage.run(["/bin/sh", "-c", rest]), end="")
        elif name == "ENV":
            key, _, value = rest.partition("=")
            stage.environment[key] = value
        elif name == "USER":
            stage.user = rest
        elif name in ("ENTRYPOINT", "CMD"):
            setattr(stage, "entrypoint" if name == "ENTRYPOINT" else "command", json.loads(rest))
        else:
            sys.exit(f"the Dockerfile has {name}, which this script does not know")
        print(f"{time.monotonic() - started:6.1f} s  {name} {rest}", flush=True)
    return stage


def copy(arguments: str, stage: Stage, stages: Mapping[str, Stage]) -> None:
    """Copy a folder of the context, as .dockerignore leaves it, or one of another stage."""
    words = shlex.split(arguments)
    other = words.pop(0).removeprefix("--from=") if words[0].startswith("--from=") else None
    source, target = words
    to = stage.root / target.lstrip("/") if target != "." else stage.root / stage.folder.lstrip("/")
    if other:
        shutil.copytree(stages[other].root / source.lstrip("/"), to, dirs_exist_ok=True)
        return
    lines = (REPOSITORY / ".dockerignore").read_text("utf-8").split()
    nested = [line.removeprefix("**/") for line in lines if line.startswith("**/")]

    def ignored(folder: str, names: list[str]) -> set[str]:
        patterns = [*nested, *(lines if Path(folder) == REPOSITORY else ())]
        return {name for name in names if any(fnmatch.fnmatch(name, p) for p in patterns)}

    shutil.copytree(REPOSITORY / source, to, dirs_exist_ok=True, ignore=ignored)


def check(image: Stage) -> None:
    """Run what the compose file runs: the resident, the web view, and a self-check."""
    print(image.run([*image.entrypoint, "self-check"]), end="")
    with image.start([*image.entrypoint, *image.command]) as resident:
        state: dict[str, object] = {}
        while resident.poll() is None and not state.get("ready"):
            state = json.loads(image.run([*image.entrypoint, "--json", "serve", "--status"]))
        assert state.get("socket") == "/memory/run/memtier.sock" and "clients" in state, state
        image.run([*image.entrypoint, "--project", "default", "remember", "The image works."])
        view = [*image.entrypoint, "--project", "default", "web", "--port", "0"]
        with image.start(view, stderr=subprocess.PIPE) as web:
            assert web.stderr is not None
            print(re.sub(r"token=\S+", "token=...", web.stderr.readline()), end="")
            web.terminate()
        image.run([*image.entrypoint, "serve", "--stop"])
    print(f"the resident ended with {resident.returncode}")


def main() -> None:
    """Build the image's steps in a temporary folder and check the result."""
    if sys.platform != "linux" or os.geteuid() != 0:
        sys.exit("this needs Linux, and to be root: it mounts folders and changes the root")
    with tempfile.TemporaryDirectory(prefix="memtier-image-") as folder:
        image = build((REPOSITORY / "Dockerfile").read_text("utf-8"), Path(folder))
        size = sum(p.lstat().st_size for p in (image.root / "opt").rglob("*") if p.is_file())
        print(f"{size / 1e6:.0f} MB in /opt/memtier")
        check(image)
    print("every step of the Dockerfile ran, and what it makes works")


if __name__ == "__main__":
    main()
