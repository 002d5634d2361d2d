"""Score pairs of query and text by a cross-encoder with ONNX Runtime (the extra `encoder`).

It reads query and text together, which takes milliseconds a pair: some tens of pairs fit into the
deadline of a prompt with a small model such as ms-marco-MiniLM-L-6-v2.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memtier_plugin.core.errors import EmbeddingUnavailable, RerankUnavailable, SettingsError
from memtier_plugin.providers.embedding.encoder import ONNX_FILES, open_onnx, require_runtime

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MAX_TOKENS: Final = 256  # of a query and a text together


class CrossEncoder:
    """The cross-encoder in a folder, loaded at the first pair."""

    def __init__(self, folder: Path) -> None:
        """Find the model.

        Raises:
            SettingsError: the folder lacks an ONNX model or a tokenizer, or there is no runtime.
        """
        model = next((folder / name for name in ONNX_FILES if (folder / name).is_file()), None)
        self._tokenizer_path = folder / "tokenizer.json"
        if model is None or not self._tokenizer_path.is_file():
            raise SettingsError(
                f"{folder} has no cross-encoder: an ONNX model ({', '.join(ONNX_FILES[-2:])}) and "
                "tokenizer.json"
            )
        require_runtime()
        self._model = model
        self._loaded: tuple[Any, Any] | None = None

    def score(self, query: str, texts: Sequence[str], seconds: float) -> list[float]:
        """Return the logit of each text, pair by pair on one thread.

        Raises:
            RerankUnavailable: not all pairs were scored within so many seconds, or the model
                cannot be read.
        """
        until = time.monotonic() + seconds
        self.warm_up()
        scores: list[float] = []
        for text in texts:
            if time.monotonic() > until:
                raise RerankUnavailable(
                    f"{len(scores)} of {len(texts)} texts were scored within {seconds:.2g} s"
                )
            scores.append(self._score(query, text))
        return scores

    def warm_up(self) -> None:
        """Load the model (raises RerankUnavailable)."""
        if self._loaded is None:  # at worst two threads read the same model
            try:
                self._loaded = open_onnx(self._model, self._tokenizer_path, _MAX_TOKENS)
            except EmbeddingUnavailable as error:
                raise RerankUnavailable(str(error)) from error

    def _score(self, query: str, text: str) -> float:
        import numpy as np

        assert self._loaded is not None  # `warm_up` sets it, or raises
        session, tokenizer = self._loaded
        pair = [part.encode("utf-8", "ignore").decode() for part in (query, text)]
        tokens = tokenizer.encode(*pair)
        given = {
            "input_ids": tokens.ids,
            "attention_mask": tokens.attention_mask,
            "token_type_ids": tokens.type_ids,
        }
        names = {value.name for value in session.get_inputs()}
        inputs = {k: np.array([v], np.int64) for k, v in given.items() if k in names}
        output: NDArray[np.float32] = session.run(None, inputs)[0].reshape(-1)
        # One logit, or those of the classes "irrelevant" and "relevant".
        return float(output[0] if output.size == 1 else output[-1] - output[0])
