"""Secrets are hidden by the shape of their value; a mention stays readable.

Every secret here is made up and put together from halves, so that scanners of repositories stay
quiet.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_rag.redaction import HIDDEN, mask

SECRETS = {
    "aws id": "AK" + "IAABCDEFGHIJ234567",
    "aws key": "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYzzzKEYAAAA",
    "github": "gh" + "p_" + "a1B2" * 9,
    "github fine": "github" + "_pat_" + "11ABCDEFG0" * 4,
    "gitlab": "glp" + "at-abcdefghij1234567890",
    "slack": "xo" + "xb-123456789012-123456789012-abcdefABCDEF123456",
    "slack hook": "https://hooks.sl" + "ack.com/services/T00000000/B00000000/abcdEFGH1234",
    "stripe": "sk_" + "live_" + "a1b2" * 6,
    "stripe of today": "sk_" + "live_" + "a1b2" * 24,
    "openai": "sk" + "-" + "a1B2c3" * 4 + "T3Blbk" + "FJ" + "a1B2c3d4e5f6g7h8i9j0",
    "openai project": "sk" + "-proj-" + "a1B2c3_-" * 8,
    "anthropic": "sk" + "-ant-api03-" + "a1B2c3_-" * 8,
    "google": "AI" + "za" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q"[:35],
    "telegram": "123456789:" + "AAabcdefghijklmnopqrstuvwxyz1234567",
    "twilio": "S" + "K" + "0a1b2c3d" * 4,
    "sendgrid": "S" + "G." + "a1" * 11 + "." + "b2" * 21 + "c",
    "pypi": "pypi" + "-AgEIcHlwaS5vcmc" + "a1" * 40,
    "npm": "np" + "m_" + "a1" * 18,
    "discord": "M" + "Ta1b2c3d4e5f6g7h8i9j0k1l.Gabc12." + "a1b2c3d4e" * 3,
    "azure": "Account" + "Key=" + "a1" * 43 + "==",
    "mailchimp": "0a1b2c3d" * 4 + "-us12",
    "square": "sq0" + "csp-" + "a1B2c3D4e5F" * 3 + "a1B2c3D4e5",
    "artifactory": "AK" + "Ca1b2c3d4e5f6",
    "jwt": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0." + "a1B2c3D4-_e5",
}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("around", ["{}", "we use {}, see below", "a\nkey = {}\nb", '"{}"', "k={}"])
def test_a_token_of_known_form_is_hidden_whole(secret: str, around: str) -> None:
    if secret == SECRETS["aws key"]:
        around = around.replace("{}", "aws_secret_access_key = '{}'")
    text, count = mask(around.format(secret))

    assert (text, count) == (around.format(HIDDEN), 1)


@pytest.mark.parametrize(
    "line",
    [
        "password: |hunter2|",
        "Password: |hunter2|.",
        "passwd = |s3cr3t!|",
        "**Password:** `|Tr0ub4dor&3|`",
        "**Password**: |hunter2|",
        "PASSWORD=|swordfish|",
        "password: |swordfish|",
        "password: |correct-horse|",
        'password = "|swordfish|"; more',
        "pin password: |4711|",
        "| password | |hunter2| |",
        "the password is |hunter2|, they said",
        "Das Passwort ist |geheim99|.",
        "Passwort: |geheim99|",
        "mot de passe : |soleil42|",
        "密码：|hunter2|",
        "passphrase: |correct horse battery staple|",
        "seed phrase = |army van defense carry jealous true|",
        '"api_key": "|abcd1234efgh5678|"',
        "api_key=|abcd1234efgh5678|",
        'token = "|supersecret1|"',
        "secret_key: |s3cr3tvalue|",
        "client_secret: |8Q~abcDEF123.ghi|",
        "access key: |0a1b2c3d4e5f|",
        "token: |550e8400-e29b-41d4-a716-446655440000|",
        "Server=x;Password=|abc123|;Db=y",
        "curl -u me:|hunter2| https://example.org",
        "run --password |hunter2| now",
        "run --api-key=|abc123de45f| now",
        "machine x login me password |hunter2|",
        "Authorization: Bearer |abc123def456ghi|",
        "curl -H 'Authorization: token |abc123def456ghi|'",
        "Authorization: Basic |dXNlcjpwYXNz|",
        "then Bearer |abc123def456ghi| goes on",
        "https://example.org/a?token=|abc123def456|&b=1",
        "(https://example.org/?a=1&access_token=|abc123def456|)",
        "https://example.org/#access_token=|abc123def456|",
        "postgres://app:|hunter2|@db:5432/x",
        "https://x-access-token:|abcdef|@example.org/r.git",
        "redis://:|hunter2|@cache",
    ],
)
def test_a_value_behind_a_name_is_hidden(line: str) -> None:
    edges = [at for at, letter in enumerate(line) if letter == "|"]
    start, end = (edges[2], edges[3]) if len(edges) > 2 else edges
    plain = line[:start] + line[start + 1 : end] + line[end + 1 :]

    assert mask(plain) == (line[:start] + HIDDEN + line[end + 1 :], 1)


@pytest.mark.parametrize(
    "text",
    [
        "rotate the API key",
        "the password is on the sticky note",
        "apiKey: process.env.KEY",
        "password = os.environ['X']",
        "password = settings.DB_PASSWORD2",
        "password = getpass.getpass()",
        "password = DB_PASSWORD",
        "password: <your password>",
        "password: your-password-1",
        "password: ${DB_PASSWORD1}",
        "password: $DB_PASS1",
        "password: {{ vault.db1 }}",
        "password: ********",
        "password: [secret hidden]",
        "password: required",
        "password: string;",
        "password: Optional[str]",
        "password: SecretStr",
        "password: argon2id",
        "password: 8 characters at least",
        "password: see 1Password",
        "password: forgotten?",
        "password: ask@example.org",
        "password: 2026-03-01 changed",
        "password: /etc/wiki/p1",
        "password = new_password",
        "password: abc",
        'password = ""',
        "the password is sha256 hashed",
        "the password is case-sensitive",
        "Password policy: 12 characters",
        "pwd = /home/me2",
        'if [[ $(pwd) == *"/work2"* ]]',
        "${TOKEN}",
        "token: ${TOKEN1}",
        "token: string",
        "token: v2",
        "token = lexer.next1()",
        "token = tokens[i + 1]",
        "max_tokens: 4096",
        "tokenizer: cl100k_base",
        "token budget: 2500tokens",
        "secret: my-k8s-secret-prod1",
        "secret: arn:aws:secretsmanager:us-east-1:123456789012:secret:prod/db-AbC123",
        "the secret: never deploy on Friday",
        "API key: rotated 2024-05-01",
        "https://example.org/?token=YOUR_TOKEN_12",
        "https://example.org/?token=short1",
        "postgres://user:password@localhost",
        "postgres://app:$DB_PASS@db",
        "http://localhost:8080/@scope/pkg",
        "docker://alpine:3.19@sha256:0a1b2c3d",
        "Authorization: Bearer <token>",
        "Authorization: Bearer $TOKEN12345",
        "Basic Authentication is used; Bearer authentication too",
        "passphrase: it is in the vault of the office",
        "commit 1f0e2d3c4b5a69788796a5b4c3d2e1f001234567",
        "550e8400-e29b-41d4-a716-446655440000",
        "sha256:" + "0a1b2c3d" * 8,
        "image: registry.io/team/app:1.2.3-a1b2c3d",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me",
        "APERTURESCIENCE and APEXCLASSNAME",
        "eyJhbGciOiJIUzI1NiJ9 is how a head looks",
        "eyJub3QganNvbg.eyJub3QganNvbg.abc",
        "it starts with `-----BEGIN RSA PRIVATE" + " KEY-----` and goes on",
        "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUa1b2c3\n-----END CERTIFICATE-----",
        "",
    ],
)
def test_a_mention_stays(text: str) -> None:
    assert mask(text) == (text, 0)


# --- private keys -------------------------------------------------------------------------------

BODY = "MIIEpAIBAAKCAQEA1234abcd+/MIIEpAIBAAKCAQEA12\n" * 5


def key_block(kind: str = "RSA ", body: str = BODY, block: str = "") -> str:
    name = f"{kind}PRIVATE KEY{block}"
    return f"-----BEGIN {name}-----\n{body}-----END {name}-----"


@pytest.mark.parametrize(
    "key",
    [
        key_block(),
        key_block("OPENSSH "),
        key_block(""),
        key_block("PGP ", f"Version: GnuPG v2\n\n{BODY}=ab1c\n", " BLOCK"),
        key_block("RSA ", f"Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\n{BODY}"),
        key_block().replace("\n", "\\n"),
        key_block().replace("\n", "\n    "),
        key_block().replace("\n", "\r\n"),
    ],
    ids=range(8),
)
def test_a_private_key_is_hidden_from_begin_to_end(key: str) -> None:
    assert mask(f"before\n{key}\nafter") == (f"before\n{HIDDEN}\nafter", 1)
    assert mask(f"{key}\n{key}") == (f"{HIDDEN}\n{HIDDEN}", 2)


def test_a_private_key_without_an_end() -> None:
    key = key_block().partition("-----END")[0].rstrip("\n")
    assert mask(f"a\n{key}") == (f"a\n{HIDDEN}", 1)
    assert mask(f"a\n{key}\nThen prose goes on.") == (f"a\n{HIDDEN}\nThen prose goes on.", 1)
    assert mask(f'"{key}", x'.replace("\n", "\\n")) == (f'"{HIDDEN}", x', 1)


def test_a_mention_above_a_key_does_not_hide_what_stands_between() -> None:
    mention = key_block().partition("\n")[0]
    certificate = key_block().replace("RSA PRIVATE KEY", "CERTIFICATE")
    assert mask(f"{mention} opens it.\n{certificate}") == (f"{mention} opens it.\n{certificate}", 0)
    text = f"{mention} opens it.\n{{}}\nEnd."
    assert mask(text.format(key_block())) == (text.format(HIDDEN), 1)


def test_the_private_lines_of_putty() -> None:
    lines = "AAAAgQCa1b2c3d4e5f6A1B2C3D4E5F6a1b2c3d4e5f6A1B2C3D4E5F6a1b2c3d4e5f6\n" * 2
    text = "Private-" + f"Lines: 2\n{lines}\nPrivate-MAC: x"
    assert mask(text)[0].startswith(HIDDEN)
    assert "AAAAgQ" not in mask(text)[0]


# --- as a whole ---------------------------------------------------------------------------------


def test_every_secret_of_a_note_is_counted() -> None:
    text = "\n".join(
        f"- {name}: see\n  {secret}" for name, secret in SECRETS.items() if name != "aws key"
    )
    masked, count = mask(text)
    assert count == len(SECRETS) - 1
    assert masked == "\n".join(
        f"- {name}: see\n  {HIDDEN}" for name in SECRETS if name != "aws key"
    )


def test_one_secret_found_twice_counts_once() -> None:
    url = f"https://example.org/?token={SECRETS['github']}"
    assert mask(url) == (f"https://example.org/?token={HIDDEN}", 1)
    assert mask(f"password: {SECRETS['stripe']}") == (f"password: {HIDDEN}", 1)


def test_a_secret_over_the_border_of_two_pieces() -> None:
    secret = SECRETS["github fine"]
    for padding in range(1_980, 2_060, 7):
        assert mask("- " * (padding // 2) + secret)[0].endswith("- " + HIDDEN)


def test_a_value_longer_than_any_pattern_is_hidden_whole() -> None:
    assert mask("api_key: " + "a1B2" * 400) == (f"api_key: {HIDDEN}", 1)


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                *SECRETS.values(),
                key_block(),
                "password: ",
                "token=",
                "?",
                "&",
                "=",
                " ",
                "\n",
                '"',
                ".",
                "ab1!",
                HIDDEN,
            ]
        ),
        max_size=8,
    )
)
def test_masking_twice_changes_nothing(parts: list[str]) -> None:
    text = "".join(parts)
    masked, count = mask(text)
    assert mask(masked) == (masked, 0)
    assert (count == 0) == (masked == text)


@settings(deadline=None)
@given(st.text(max_size=60))
def test_text_without_a_name_or_a_form_is_untouched(text: str) -> None:
    words = "".join(letter for letter in text if not letter.isdigit() and letter not in "=:：|-?&")
    assert mask(words) == (words, 0)


WALLS = {
    "letters": "a",
    "spaces": " ",
    "line breaks": "\n",
    "names": "token:",
    "names with digits": "password=1",
    "addresses": "://a:",
    "tokens": "eyJ",
    "begins": "-----BEGIN PRIVATE" + " KEY-----",
    "gaps": "key" + " " * 1_000,
    "slashes": "//a/",
    "parameters": "?token=",
    "phrases": "mnemonic: " + "ab " * 30,
}


@pytest.mark.parametrize("wall", WALLS.values(), ids=WALLS)
def test_a_line_of_a_megabyte_takes_linear_time(wall: str) -> None:
    mask("")  # the detectors are loaded
    times = []
    for size in (62_500, 250_000):
        started = time.perf_counter()
        mask(wall * (size // len(wall)))
        times.append(time.perf_counter() - started)
    # Four times the text: quadratic time would be sixteen times as much.
    assert times[1] < 10 * times[0] + 0.1


def test_nothing_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("masking must not use the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for secret in SECRETS.values():
        mask(secret)


def test_the_detectors_are_loaded_on_first_use_only() -> None:
    code = (
        "import sys; from prompt_rag import redaction; assert 'detect_secrets' not in sys.modules;"
        "redaction.mask('x'); assert 'detect_secrets' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
