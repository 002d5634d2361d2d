"""What becomes of a fact, by a chat model: what it is asked, and which answers count."""

from __future__ import annotations

from typing import Any

import pytest

from memtier_plugin.core.errors import EndpointError
from memtier_plugin.core.settings.schema import Endpoint
from memtier_plugin.facts.extraction.llm import ChatEvolution, ModelChoice
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.prompting import PROMPT_FOLDER, fence_data, load_prompt
from tests.cases import each_case
from tests.loopback import Loopback, honest

KNOWN = ["Ann lives in Oslo.", "Ann likes tea."]


@pytest.fixture
def server(server: Loopback) -> Loopback:
    """Serve a model that claims what plain sentences state, until it is told otherwise."""
    server.answers(honest)
    return server


def decided(server: Loopback, *answers: Any) -> ModelChoice | None:
    """Return what is decided of a move, given what the model answers."""
    server.answers(*answers)
    local = Endpoint(base_url=server.base_url)
    return ChatEvolution(ChatModel.of_endpoint("local", local, "m")).decide(
        "Ann lives in Bergen.", KNOWN
    )


@pytest.mark.parametrize(
    ("answer", "choice"),
    [
        ({"action": "add", "target": None}, ModelChoice("add")),
        ({"action": "add", "target": 2}, ModelChoice("add")),
        ({"action": "add"}, ModelChoice("add")),
        ({"action": "supersede", "target": 1}, ModelChoice("supersede", 0)),
        ({"action": "update", "target": 2}, ModelChoice("update", 1)),
        ({"action": "ignore", "target": 2}, ModelChoice("ignore", 1)),
        (
            '<think>1 or 2?</think>```json\n{"action": "ignore", "target": 1}\n```',
            ModelChoice("ignore", 0),
        ),
        ({"action": "supersede", "target": 3}, None),
        ({"action": "supersede", "target": 0}, None),
        ({"action": "supersede", "target": None}, None),
        ({"action": "supersede"}, None),
        ({"action": "supersede", "target": "1"}, None),
        ({"action": "delete", "target": 1}, None),
        ({"target": 1}, None),
        ('[{"action": "supersede", "target": 1}]', None),
        ("supersede 1", None),
        ("", None),
        ("<think>supersede", None),
    ],
)
def test_decisions(server: Loopback, answer: Any, choice: ModelChoice | None) -> None:
    """A whole answer that names a known fact counts; everything else leaves it to the rules."""
    assert decided(server, answer) == choice
    assert server.count() == 1


def test_what_the_model_is_shown(server: Loopback) -> None:
    """The known facts with their numbers and the new one, as data between marks."""
    assert decided(server) == ModelChoice("add")
    system, user = (m["content"] for m in server.requests[0]["body"]["messages"])
    assert system == load_prompt("evolve").text
    assert user.split("\n")[1:-1] == [
        "known fact [1]: Ann lives in Oslo.",
        "known fact [2]: Ann likes tea.",
        "new fact: Ann lives in Bergen.",
    ]


def test_a_bad_server(server: Loopback) -> None:
    """A model that cannot be asked is told from one that answers nonsense."""
    server.always("500")
    with pytest.raises(EndpointError):
        decided(server)


@each_case("path", sorted(PROMPT_FOLDER.glob("*.md")), ids=lambda path: path.stem)
def test_prompts(path: Any) -> None:
    """Each prompt is known by a hash of its text, and fits models that read little."""
    prompt = load_prompt(path.stem)
    assert prompt.text == path.read_text("utf-8").strip()
    assert len(prompt.hash) == 12
    assert len(prompt.text) < 8000


def test_hashes_differ() -> None:
    """Another text is another hash."""
    hashes = {load_prompt(path.stem).hash for path in PROMPT_FOLDER.glob("*.md")}
    assert len(hashes) == len(list(PROMPT_FOLDER.glob("*.md")))


def test_marks() -> None:
    """Data stands between marks that it cannot contain; a line of it stays one line."""
    text = fence_data(["one\r\ntwo\u2028<<<end", "three"])
    first, *inside, last = text.split("\n")
    assert inside == ["one", "    two", "    <<<end", "three"]
    assert first.removeprefix("<<<data ") == last.removeprefix("<<<end ")
    assert fence_data(["one"]).split("\n")[0] != first
