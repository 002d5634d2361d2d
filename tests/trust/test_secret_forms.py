"""Ways to write a secret down, and texts that only look like one; the data files hold them."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import cast

import pytest

from memtier_plugin.memory import MemTier
from memtier_plugin.trust import secret_formats
from memtier_plugin.trust.redaction import Redactor
from tests.cases import each_case
from tests.trust.secret_draws import SecretForm, leaked, look_alikes, secret_forms

SEEDS = (0, 1, 2)
SHARE_MASKED = 0.01  # of texts that only look like a secret
MOST_TIMES = 200  # what a hostile text may cost, by what prose of its length costs
PROSE = "The nightly build failed because the cache was cold, so we moved the job to the evening. "
# What may be repeated: what each finder starts with, and what it goes on with.
UNITS = (
    *(
        "a",
        "1",
        "=",
        "A-",
        "a_",
        "Aa1_",
        "\n",
        "a\n",
        "aaaaaaaaa1\n",
        "x=\\\n",
        "\u200b",
        "a\u200b",
    ),
    *("\uff41", "\uff1a", "4111 ", "4111-", "4111 1111 1111 1111 ", "5", "L1a", "abandon "),
    *("1. abandon ", "seed phrase: abandon ", "sntrys_", "dp.pt.", "st.", "ghp_\n", "EAAA", "pat"),
    *("A3-ABCDEF-", "1Q~", "xprv", "?sig=", "&sig=a1", "$2b$", "$6$a$", "x-api-key: ", "x-a-x-a-"),
    *("密码", "密码是a", "パスワードは", "비밀번호는", "mi contraseña ", "mi contraseña es "),
    *("mot de passe du ", "mein passwort ", "пароль ", "пароль: ", "clave ", "clave del "),
    *("my pin ", "PIN is ", "PIN for a a a ", "code 1234 ", "mysql ", "mysql -p", "login -p "),
    *("Cookie: ", "Cookie: a=b; ", "log in as ", "log in as a / ", "credentials: a:", "token "),
    *("htpasswd -b ", "ldap -w ", "smbclient -U a%", "-pass pass:", "echo a | sudo ", "api key "),
    *("password is ", "the password for a a a a a a a is ", "password=x1y2z3 ", "--pass "),
    *(
        'auth=("a", "',
        "name: A_KEY value: ",
        "kind: Secret\ndata:\n a: b\n",
        "user a on >",
        "echo a > ",
    ),
    *(
        "zip -P ",
        "7z -p",
        "gate code is 4471 ",
        "4471 is the code ",
        "my answer to the security question ",
        "backup codes 4f9k-22xm ",
        "login from a to ",
        " as the password",
        "log in as a / ",
        "admin: a b c ",
        "key: ",
    ),
    *("recovery codes a1-", "a1a1-a1a1 ", "MIIEvQIBA", "LS0tLaaaaaaaaa", "password: ab cd ef "),
    *(
        "密码从a改成",
        "作为密码",
        "A_KEY=a1B2c3D4e5F6g7H8 ",
        "net use ",
        "snmp-server community a1 ",
    ),
    *("admin//a1b2c3 ", "user a!1", "pin card 1234 ", "seed a b: ", "pass=<(echo ", "AKC ", "AP0a"),
    *("374658-420855-", "unlock the phone with 1234 ", "a key with sha token "),
    *("password: '", "[redacted:", "password=[redacted:a]", "-----BEGIN PRIVATE KEY-----", "eyJ"),
)

redactor = Redactor()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_form_of_a_secret_is_masked(seed: int) -> None:
    """Of each way to write a secret no ten characters in a row are left, whatever was drawn."""
    forms = secret_forms(seed)
    assert len(forms) >= 165
    by_choice = Redactor(personal_numbers=True)
    masked = {
        f.name: (by_choice if f.group == "access" else redactor).redact(f.text).text for f in forms
    }
    assert {f.name: masked[f.name] for f in forms if leaked(f.secrets, masked[f.name])} == {}


@each_case("form", [f for f in secret_forms(3) if f.group == "access"], ids=str)
def test_codes_of_doors_are_remembered(form: SecretForm) -> None:
    """The code of a door is what a memory is asked for: it is masked by choice alone."""
    assert redactor.redact(form.text).text == form.text


def test_secrets_that_were_drawn_without_a_figure() -> None:
    """Passwords and tokens of letters alone are masked; names in camelCase are none."""
    secrets = ("oKDkhLmzlN", "luIEYrqaykvFYgzrgBjsluNTGgXKnFWu")
    for text in (
        f"mysqldump --user=root --password={secrets[0]} shop > shop.sql",
        f"CI uses dckr_oat_{secrets[1]}",
        f"use pul-{secrets[1]}ABcd{secrets[0]} for it",
    ):
        assert not leaked(secrets, redactor.redact(text).text), text
    for text in (
        "chrome --password-store=basic",
        "read it with --password=stdin",
        "call re_someNameInCamelCaseThatIsRatherLong of the module",
        "st.cacheTheResultOfThisFunctionUntilTheInputChanges",
    ):
        assert redactor.redact(text).text == text


@pytest.mark.parametrize("seed", SEEDS)
def test_look_alikes_are_left_alone(seed: int) -> None:
    """Of texts that only look like a secret at most one in a hundred is touched."""
    texts = look_alikes(seed)
    assert len(texts) >= 225
    masked = [text for text in texts if redactor.redact(text).text != text]
    assert len(masked) <= SHARE_MASKED * len(texts), masked


def on_disk(home: Path) -> str:
    """Return all that the files of a home hold, as text."""
    files = [path for path in home.rglob("*") if path.is_file()]
    return "\n".join(path.read_bytes().decode("utf-8", "replace") for path in files)


def test_no_form_reaches_the_disk(tmp_path: Path) -> None:
    """Recorded as user's, assistant's and tools' words and asked for: no file has any of it."""
    home = tmp_path / "home"
    forms = [form for form in secret_forms(7) if form.group != "access"]
    with MemTier.open(home, "p", "host.main") as memory:
        roles = cycle(("user", "assistant", "tool"))
        messages = [{"role": next(roles), "content": form.text} for form in forms]
        memory.end_run(messages, session_id="s", run_id="r")
        for form in forms[::16]:
            memory.recall(form.text, session_id="s", run_id="r2", purpose="inject")
        memory.remember(forms[-1].text)
    disk = on_disk(home)
    for form in forms:  # a PIN's figures stand by chance in some id
        assert not leaked(tuple(s for s in form.secrets if len(s) >= 7), disk), form.name


def test_no_name_carries_a_secret_to_the_disk(tmp_path: Path) -> None:
    """Session, run, sender, speaker, parent, tool and call id are masked, and still told apart."""
    home = tmp_path / "home"
    names = [f"work {form.text}" for form in secret_forms(8) if form.name == "GitHub app token"]
    names += [f"{names[0][:-30]}{number}{names[0][-29:]}" for number in "XYZVWU"]
    secrets = tuple(name.split("x-access-token:")[1].split("@")[0] for name in names)
    session, run, sender, speaker, parent, tool, call = names
    result = {"role": "tool", "tool": {"name": tool, "call_id": call, "ok": True}, "content": "ok"}
    with MemTier.open(home, "p", "host.main") as memory:
        messages = [{"role": "user", "content": "The pump is blue.", "speaker": speaker}, result]
        for _ in range(2):  # the second delivery adds nothing
            memory.end_run(messages, session_id=session, run_id=run, sender=sender, parent=parent)
        memory.end_run([{"role": "user", "content": "And red."}], session_id=run, sender=session)
        assert len([*memory.entries(session=session)]) == 2
        recall = memory.recall("pump blue", session_id=run, run_id=session, sender=sender)
        assert [hit.item.content for hit in recall.hits if hit.item.content.startswith("The")]
        others = memory.recall("pump blue", sender=session)
        assert all("blue" not in hit.item.content for hit in others.hits)
    assert leaked(secrets, on_disk(home)) == []


def milliseconds(text: str) -> float:
    """Return what redacting 10 kB of a text takes, in this process's own time."""
    started = time.process_time()
    redactor.redact(text)
    return (time.process_time() - started) * 1000 / (len(text) / 10_000)


@pytest.mark.parametrize(
    ("drawn", "chars", "most_chars"),
    [(0, 5_000, 50_000), pytest.param(40, 20_000, 1_000_000, marks=pytest.mark.slow)],
)
def test_hostile_texts_cost_a_bounded_multiple_of_prose(
    drawn: int, chars: int, most_chars: int
) -> None:
    """Repeated and mixed, up to 1 MB: milliseconds per 10 kB stay within a multiple of prose's."""
    rng = random.Random(4)
    mixed = ["".join(rng.choices(UNITS, k=rng.randrange(2, 5))) for _ in range(drawn)]
    units = [*UNITS, *mixed]
    for unit in UNITS:  # import and compile
        redactor.redact(unit * 40)
    prose = min(milliseconds(PROSE * (chars // 10)) for _ in range(3))
    costs = {unit: milliseconds(unit * (chars // len(unit))) / prose for unit in units}
    worst = sorted(units, key=costs.__getitem__)[-1:]
    costs |= {unit: milliseconds(unit * (most_chars // len(unit))) / prose for unit in worst}
    assert max(costs.values()) < MOST_TIMES, sorted(costs.items(), key=lambda item: -item[1])[:5]


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 8))]
)
def test_a_text_read_in_steps_is_masked_as_one_read_at_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the steps of a search end changes nothing, with secrets on both sides of each end."""
    rng = random.Random(seed)
    parts = [*(form.text for form in secret_forms(seed)), *UNITS, *look_alikes(seed), PROSE]
    text = rng.choice([" ", "\n", ". "]).join(rng.choices(parts, k=300))
    assert len(text) > 2 * secret_formats._STEP
    in_steps = redactor.redact(text)
    monkeypatch.setattr(secret_formats, "_STEP", len(text))
    assert redactor.redact(text) == in_steps


def test_no_call_of_a_search_reads_a_long_text() -> None:
    """A search reads a few kilobytes at a time, as no other thread runs meanwhile."""
    calls: list[int] = []

    class Watched:
        def finditer(self, text: str, start: int, stop: int) -> Iterator[re.Match[str]]:
            calls.append(stop - start)
            return re.finditer("needle", text[:stop])

    text = "hay " * 100_000 + "needle"
    [match] = secret_formats.matches_in_steps(cast("re.Pattern[str]", Watched()), text)
    assert match.end() == len(text)
    assert max(calls) <= secret_formats._STEP + secret_formats._REACH


@pytest.mark.sampled(2)
@pytest.mark.parametrize("unit", ["api_key=", "token=a)", "credentials:", "pass=a #", "x_pass=a,"])
def test_names_without_a_gap_cost_no_square(unit: str) -> None:
    """The run that many names stand in is read once: eight times the text takes no 64 times."""
    cost = {
        chars: min(milliseconds(unit * (chars // len(unit))) for _ in range(times))
        for chars, times in ((5_000, 3), (40_000, 2))
    }
    assert cost[40_000] < 3 * cost[5_000]  # for each 10 kB


def test_a_word_repeated_is_no_seed_phrase() -> None:
    """A row of a few words again and again was not drawn at random."""
    for text in ("word " * 40, "test word again " * 8, "abandon " * 11 + "about"):
        assert redactor.redact(text).text == text
