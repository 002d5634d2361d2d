"""Redaction: no secret reaches a ledger, and hardly anything else is touched.

Every secret is put together at run time, so that scanners of this repository stay quiet.
"""

import re
import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memtier_plugin.trust.redaction import RedactedText, Redactor
from tests.cases import each_case

_B64 = "aB3d" * 30
_PEM = "-----{} RSA PRIVATE " + "KEY-----"
_BODY = "\n".join(["MIIEow" + _B64[:58]] * 3) + "\nQ9w=="

SECRETS = {
    "openai": "sk-" + _B64[:48],
    "openai project": "sk-" + "proj-" + _B64[:40] + "_" + _B64[:40],
    "openrouter": "sk-" + "or-v1-" + "0a1b" * 16,
    "anthropic": "sk-" + "ant-api03-" + _B64[:90],
    "aws id": "AKIA" + "ABCD2345EFGH6789",
    "github classic": "ghp_" + "a1B2" * 9,
    "github oauth": "gho_" + "a1B2" * 9,
    "github fine": "github_" + "pat_" + _B64[:22] + "_" + _B64[:59],
    "gitlab": "glpat" + "-" + _B64[:20],
    "slack bot": "xoxb" + "-123456789012-123456789012-" + _B64[:24],
    "slack app": "xapp" + "-1-A0123456789-" + _B64[:24],
    "stripe secret": "sk_" + "live_" + _B64[:24],
    "stripe restricted": "rk_" + "live_" + _B64[:24],
    "google": "AI" + "za" + _B64[:35],
    "hugging face": "hf" + "_" + _B64[:34],
    "npm": "npm" + "_" + _B64[:36],
    "pypi": "pypi" + "-AgEIcHlwaS5vcmc" + _B64[:80],
    "telegram": "123456789" + ":" + "AA" + _B64[:33],
    "discord": "M" + _B64[:23] + "." + _B64[:6] + "." + _B64[:27],
    "sendgrid": "SG" + "." + _B64[:22] + "." + _B64[:43],
    "twilio": "SK" + "0a1b" * 8,
    "digitalocean": "dop_" + "v1_" + "0A1b" * 16,
    "groq": "gsk" + "_" + _B64[:52],
    "jwt": "ey" + "JhbGciOiJIUzI1NiJ9." + "ey" + "JzdWIiOiIxIn0." + _B64[:43],
    "pem": _PEM.format("BEGIN") + "\n" + _BODY + "\n" + _PEM.format("END"),
    "pem in json": (_PEM.format("BEGIN") + "\n" + _BODY + "\n" + _PEM.format("END")).replace(
        "\n", "\\n"
    ),
}

# What stands before the secret, the secret, what stands behind it.
ASSIGNED = [
    ("password = ", "hunter" + "22", ""),
    ("password: ", "hunter" + "22", ""),
    ("DB_PASSWORD=", "hun" + "ter", ""),
    ("api_key=", "9x2a-" + "b7q1-an_44", ""),
    ('secret = "', "q7-the-" + "r4+/=", '"'),
    ("export TOKEN=", "abc123" + "def", ""),
    ('"api_key": "', "abc123" + "def456", '"'),
    ('{\\"password\\": \\"', "hunter" + "2", '\\"}'),
    ("client --password ", "fo" + "o", " --verbose"),
    ("client --token=", "abc123" + "def", ""),
    ("aws_secret_access_key = ", "wJalrX/" + _B64[:33], ""),
    ("Authorization: Bearer ", _B64[:20], ""),
    ("Authorization: Basic ", "dXNlcjpw" + "YXNzd29yZA==", ""),
    ("curl -H 'X-Api-Key: ", "abc123" + "def456", "' localhost"),
    ("curl -u bob:", "hunter" + "2", " localhost"),
    ("postgres://bob:", "s3cr3t!" + "#", "@db.local/app"),
    ("redis://:", "s3" + "cr3t", "@localhost:6379"),
    ("Server=db;User=bob;Pwd=", "hunter" + "2", ";Timeout=5"),
    ("<password>", "hunter" + "2", "</password>"),
    ('password: str = "', "hunter" + "2", '"'),
    ("the password for the router is ", "Hunter" + "22", "."),
    ("https://host/path?token=", "abc123" + "def", "&page=2"),
    ("machine host login bob password ", "hunter" + "2", ""),
]

HARMLESS = [
    "password: must be at least 12 characters",
    "Password: required",
    "the password is at least 8 characters long",
    "the token is expired",
    "Your API key is invalid, get a new token.",
    "Bearer authentication-is-required-here",
    'password=os.environ["X"]',
    "SECRET_KEY = os.getenv('SECRET_KEY', 'default')",
    "password=settings.database.password",
    "connect(user=user, password=password)",
    "login(password=user_password1)",
    "password: str",
    "token: Optional[str] = None",
    "const token = await getToken()",
    "if token == 'string':",
    "password VARCHAR(255)",
    "password=%s",
    "DB_PASSWORD=${DB_PASSWORD}",
    "token: ${{ secrets.GITHUB_TOKEN }}",
    "api_key=<your-key>",
    'api_key="YOUR_API_KEY"',
    "token = my_token_value1",
    'new Client("xoxb-your-slack-token")',
    "OPENAI_API_KEY=sk-your-key-here",
    "password: example-pw1",
    "PASSWORD_FILE=/run/secrets/db",
    "PWD=/home/user",
    "max_tokens=600",
    "token_budget: 600",
    "tokens: 1234567",
    "token: 600",
    "pass: 100%",
    "the --password flag",
    "postgres://user:${PASS}@host/db",
    "http://localhost:8080/a@b",
    "git@github.com:owner/repo.git",
    "123e4567-e89b-12d3-a456-426614174000",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "md5 5d41402abc4b2a76b9719d911017c592",
    "sk-learn-is-a-very-long-class-name",
]

redact = Redactor().redact
around = st.one_of(
    st.text(), st.sampled_from(["password=", "token: ", '"', "'", "://a:", "\\", "Bearer", "-----"])
)
words = st.text(alphabet=string.ascii_letters + " .,\n", max_size=80)


@each_case("name", SECRETS)
def test_each_known_format_is_replaced(name: str) -> None:
    """A key in a known format leaves only its marker, also next to quotes and punctuation."""
    for before, after in (("", ""), ("key '", "',"), ("(", ")."), ("x=", "\n"), ("\\n", " y")):
        assert re.fullmatch(
            re.escape(before) + r"\[redacted:[a-z-]+\]" + re.escape(after),
            redact(before + SECRETS[name] + after).text,
        )


@each_case(("before", "secret", "after"), ASSIGNED)
def test_only_the_value_of_an_assignment_is_replaced(before: str, secret: str, after: str) -> None:
    """The name, the host and what follows stay readable; the value goes."""
    text = redact(before + secret + after).text
    assert re.fullmatch(re.escape(before) + r"\[redacted:[a-z-]+\]" + re.escape(after), text)


@each_case("text", HARMLESS)
def test_prose_code_and_placeholders_stay(text: str) -> None:
    """What only resembles a secret is written as it is."""
    assert redact(text) == RedactedText(text)


def test_unterminated_private_key_goes_and_prose_behind_it_stays() -> None:
    """A block that was cut off is replaced as far as its lines look like one."""
    text = "here:\n" + _PEM.format("BEGIN") + "\n" + _BODY + "\nthen I restarted the server"
    assert redact(text).text == "here:\n[redacted:private-key]\nthen I restarted the server"


def test_kinds_are_named_once_in_order() -> None:
    """The kinds found are reported for the doctor, each once."""
    first, second = SECRETS["github classic"], SECRETS["google"]
    assert redact(f"{first} {second} {first}").kinds == ("github-token", "google-key")


def test_a_name_and_a_format_make_one_marker() -> None:
    """Where two rules see the same secret the better-known kind names it."""
    assert redact("OPENAI_API_KEY=" + SECRETS["openai"]).text == (
        "OPENAI_API_KEY=[redacted:openai-key]"
    )


def test_disabled_changes_nothing() -> None:
    """`redaction.enabled: false` is obeyed."""
    assert Redactor(enabled=False).redact(SECRETS["npm"]) == RedactedText(SECRETS["npm"])


@pytest.mark.parametrize("rule", ["hunter22+(", r"hunter\d+\+\(", r"hunter.*"])
def test_allow_keeps_what_it_matches_whole(rule: str) -> None:
    """An allow rule is an exact text or an expression; matching a part is not enough."""
    text = 'password = "hunter22+("'
    assert Redactor(allow=[rule]).redact(text).text == text
    assert Redactor(allow=["hunter", r"\d+"]).redact(text).text != text


def test_extra_spans_are_replaced_too() -> None:
    """A plugin's spans join the built-in ones; impossible spans are dropped."""

    def badges(text: str) -> list[tuple[int, int, str]]:
        spans = [(m.start(), m.end(), "Staff Badge") for m in re.finditer(r"B-\d{4}", text)]
        return [*spans, (5, 5, "empty"), (0, 10**6, "outside")]

    assert Redactor(extra=badges).redact("badge B-1234 and B-99") == RedactedText(
        "badge [redacted:staff-badge] and B-99", ("staff-badge",)
    )


def test_a_failing_extra_is_not_swallowed() -> None:
    """Nothing counts as redacted when a redactor failed."""

    def broken(text: str) -> list[tuple[int, int, str]]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Redactor(extra=broken).redact("text")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "unit",
    [
        *("a", "1", "=", "A-", "\\n", "//", "://a:", "eyJ", "ey" + "Jaaaaaaaaa.", "bearer 1"),
        *("password", "password=", "password=x1y2z3 ", 'token="', "--pass ", "curl -u a"),
        _PEM.format("BEGIN"),
    ],
)
@pytest.mark.parametrize("chars", [60_000, pytest.param(300_000, marks=pytest.mark.slow)])
def test_hostile_repetition_ends(unit: str, chars: int) -> None:
    """No pattern takes quadratic time (a quadratic one takes minutes here, not a second)."""
    redact(unit * (chars // len(unit)))


def test_surrogates_and_nul_pass() -> None:
    """Text that cannot be encoded is redacted like any other."""
    secret = SECRETS["github classic"]
    assert redact(f"\ud800\0 {secret} \udfff").text == "\ud800\0 [redacted:github-token] \udfff"


@given(
    st.lists(
        st.one_of(
            st.text(max_size=20),
            st.sampled_from([*SECRETS.values(), *("".join(a) for a in ASSIGNED), *HARMLESS]),
            st.sampled_from(
                ["password", "token", "=", ": ", " is ", '"', "\\", "]", "[redacted:", "\n"]
            ),
        ),
        max_size=12,
    ).map("".join)
)
def test_redacting_twice_is_redacting_once(text: str) -> None:
    """A marker is never taken for a secret, nor does it uncover one."""
    once = redact(text).text
    assert redact(once) == RedactedText(once)


@given(around, st.sampled_from(sorted(SECRETS.values())), around)
def test_a_planted_secret_never_survives(before: str, secret: str, after: str) -> None:
    """Whatever stands around it, parted by white space, a secret is gone."""
    assert secret not in redact(f"{before} {secret}\n{after}").text


@given(around, st.sampled_from(ASSIGNED), around)
def test_a_planted_assignment_never_survives(
    before: str, assigned: tuple[str, str, str], after: str
) -> None:
    """Whatever stands around it, the value of an assignment is gone."""
    name, secret, end = assigned
    assume(secret not in before + after)
    assert secret not in redact(f"{before}\n{name}{secret}{end}\n{after}").text


@given(words)
def test_plain_words_are_unchanged(text: str) -> None:
    """Prose without names of secrets is left alone."""
    assume(not re.search("pass|pwd|secret|token|key|credential|login|curl", text, re.IGNORECASE))
    assert redact(text) == RedactedText(text)


@pytest.mark.parametrize(
    ("module", "detector"),
    [
        ("artifactory", "ArtifactoryDetector"),
        ("aws", "AWSKeyDetector"),
        ("azure_storage_key", "AzureStorageKeyDetector"),
        ("discord", "DiscordBotTokenDetector"),
        ("github_token", "GitHubTokenDetector"),
        ("gitlab_token", "GitLabTokenDetector"),
        ("mailchimp", "MailchimpDetector"),
        ("openai", "OpenAIDetector"),
        ("pypi_token", "PypiTokenDetector"),
        ("sendgrid", "SendGridDetector"),
        ("stripe", "StripeDetector"),
        ("telegram_token", "TelegramBotTokenDetector"),
        ("twilio", "TwilioKeyDetector"),
    ],
)
@given(data=st.data())
def test_what_detect_secrets_knows_is_found(
    module: str, detector: str, data: st.DataObject
) -> None:
    """The token formats of detect-secrets are covered: what its patterns make, we replace.

    All but placeholders: no issuer draws a token without a digit whose cases do not mix.
    """
    plugins = pytest.importorskip(f"detect_secrets.plugins.{module}")
    pattern = getattr(plugins, detector).denylist[0]
    plain = re.compile(
        pattern.pattern.replace(r"(?!\w)", ""), (pattern.flags & ~re.UNICODE) | re.ASCII
    )
    secret = data.draw(st.from_regex(plain, fullmatch=True))
    secret = re.sub(r"(?<=\d:)..", "AA", secret).strip(' \t\n\r\f\v"=:')  # as Telegram issues them
    assume(re.search(r"[0-9]|[a-z][A-Z].*[a-z][A-Z]", secret))
    assert secret not in redact(f"see {secret} there").text


@pytest.mark.parametrize("token", ["AKCAAAAAAAAAA", "APAAAAAAAAAA", "ghp_" + "x" * 36])
def test_a_token_of_one_repeated_letter_is_a_placeholder(token: str) -> None:
    """Documentation writes tokens so; nothing is drawn there that could be used."""
    assert redact(f"see {token} there").text == f"see {token} there"


def test_names_are_read_once() -> None:
    """The names that stand on every message are looked through once, and bounded in number."""
    seen: list[str] = []

    def watch(text: str) -> list[tuple[int, int, str]]:
        seen.append(text)
        return []

    redactor = Redactor(extra=watch)
    for _ in range(3):
        assert redactor.redact_name("a-session-of-mine") == "a-session-of-mine"
    assert seen == ["a-session-of-mine"]
    for number in range(2000):
        redactor.redact_name(f"session-of-number-{number}")
    seen.clear()
    assert redactor.redact_name("a-session-of-mine") and seen


@each_case(
    ("before", "number", "after"),
    [
        ("pay to ", "DE89 3704 0044 0532 0130 00", " TODAY"),
        ("IBAN ", "GB82WEST12345698765432", "."),
        ("my SSN is ", "219-09-9999", ""),
        ("sécu : ", "2 55 08 14 168 025 38", ""),
        ("DNI ", "12345678Z", ""),
    ],
)
def test_personal_numbers_are_masked_by_choice(before: str, number: str, after: str) -> None:
    """IBANs and numbers of persons stay, unless the setting says otherwise."""
    text = before + number + after
    assert redact(text).text == text
    masked = Redactor(personal_numbers=True).redact(text).text
    assert re.fullmatch(re.escape(before) + r"\[redacted:[a-z-]+\]" + re.escape(after), masked)


@each_case(
    "text",
    [
        "DE89 3704 0044 0532 0130 01",
        "000-12-3456",
        "12345678A",
        "2 55 08 14 168 025 39",
        "555-0199",
    ],
)
def test_numbers_with_a_wrong_check_are_none(text: str) -> None:
    """What only looks like an account or a person's number stays."""
    assert Redactor(personal_numbers=True).redact(text).text == text
