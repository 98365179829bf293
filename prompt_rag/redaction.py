"""Secrets in excerpts: hidden by the shape of their value, never by the mention of their name.

Three finders look at a text: detect-secrets' detectors of tokens that are known by their form,
the forms it does not know, and values that stand behind a name such as ``password:``. None of
them looks at how random a text is, which would hide commit hashes, ids and checksums; and nothing
is ever verified, which would send the secret to whoever might have issued it.

Wrong either way costs: a secret that gets out cannot be called back, and an excerpt full of
blanks helps nobody. A value behind a name must therefore look like one: ``password: hunter2`` is
hidden, ``password: required``, ``apiKey: process.env.KEY`` and ``token: ${TOKEN}`` are not.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Span = tuple[int, int]

HIDDEN = "[secret hidden]"

# Some of the library's patterns take quadratic time; they see a text in pieces that overlap by more
# than any form that is looked for is long.
_PIECE = 2_048
_OVERLAP = 256
_WIDE_GAP = re.compile(r"\s{16,}")  # no value is that far from its name, and gaps cost the most


def mask(text: str) -> tuple[str, int]:
    """Return ``text`` with each secret value replaced by ``HIDDEN``, and how many there were.

    Masking a masked text changes nothing and counts nothing. Takes time linear in ``text``.
    """
    total = 0
    # What is hidden can uncover the next one ("password: x://…"); every pass leaves less to find.
    while count := len(spans := _spans(text)):
        parts: list[str] = []
        position = 0
        for start, end in spans:
            parts += text[position:start], HIDDEN
            position = end
        text = "".join(parts) + text[position:]
        total += count
    return text, total


def _spans(text: str) -> list[Span]:
    """Return where the secrets of ``text`` are, in order; those that overlap are one."""
    merged: list[Span] = []
    for start, end in sorted(span for find in _FINDERS for span in find(text)):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


# --- blocks -------------------------------------------------------------------------------------

_BEGIN = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|Private-Lines: \d+(?=\r?\n)"
)
_END = re.compile(r"-----(BEGIN |END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)")
# A line of a key: base64, perhaps quoted, indented or with a line break written as \n; or a
# header as encrypted and PGP keys have them.
_KEY_LINE = re.compile(
    r"[\s>|\"'+]*(?:(?:[A-Za-z0-9+/=]|\\[nr])*|[A-Z][\w-]+: [^\n]{0,200})[\"',\s]*"
)
_KEY_RUN = re.compile(r"(?:[A-Za-z0-9+/=]|\\[nr])*")  # behind the first line, where \n is written
_KEY_MATTER = re.compile(r"[A-Za-z0-9+/=]{16}")
_LONGEST_KEY = 20_000  # characters; 16,384 bits take some 13,000


def _key_blocks(text: str) -> Iterator[Span]:
    """Find private keys from their first line to their last, or to where an unended one ends."""
    position = 0
    while begin := _BEGIN.search(text, position):
        position = begin.end()
        # Where another block begins before this one ends, its own end is missing.
        last = _END.search(text, position, position + _LONGEST_KEY)
        if last and last[1] != "BEGIN ":
            end = last.end()
        else:
            end = _KEY_RUN.match(text, position).end()  # type: ignore[union-attr]  # may be empty
            while text.startswith(("\n", "\r\n"), end):
                line_end = text.find("\n", text.find("\n", end) + 1)
                line_end = len(text) if line_end < 0 else line_end
                if not _KEY_LINE.fullmatch(text, end, line_end):
                    break
                end = line_end
        if _KEY_MATTER.search(text, position, end):  # else the line is only mentioned
            yield begin.start(), end
            position = end


# --- tokens that are known by their form --------------------------------------------------------

# Forms that detect-secrets 1.5 does not know, or not in today's length. Prefixes and lengths are
# those the issuers publish.
_FORMS = (
    re.compile(r"AKC[a-zA-Z0-9]{10,}"),  # Artifactory, at the end of a clause too
    re.compile(r"github_pat_\w{22,}"),
    re.compile(r"npm_[A-Za-z0-9]{36}"),
    re.compile(r"sk-(?:ant|proj|svcacct|admin|or)-[\w-]{20,}"),
    re.compile(r"sk-[A-Za-z0-9]{48}"),
    re.compile(r"AIza[\w-]{35}"),  # Google
    re.compile(r"GOCSPX-[\w-]{28}"),
    re.compile(r"ya29\.[\w-]{20,}"),
    re.compile(r"xapp-\d-[A-Z0-9]+-\d+-[a-z0-9]{20,}"),  # Slack
    re.compile(r"xox[a-z]-[\w-]{20,}"),
    re.compile(r"hf_[A-Za-z0-9]{34}"),
    re.compile(r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    re.compile(r"do[opr]_v1_[a-f0-9]{64}"),
    re.compile(r"(?:sk|rk)_test_[0-9a-zA-Z]{24}"),
    re.compile(r"whsec_[A-Za-z0-9+/=]{24,}"),
    re.compile(r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    re.compile(r"lin_api_[A-Za-z0-9]{40}"),
    re.compile(r"ntn_[A-Za-z0-9]{40,}"),
    re.compile(r"tskey-[a-z]+-[\w-]{20,}"),
)
_TOKEN_REST = re.compile(r"[A-Za-z0-9_\-]*")
_VALUE_GROUP = 16  # characters; a shorter group in the library's patterns is a prefix, no value


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """Return the patterns of the library's detectors that know a secret by its form.

    Left out: entropy and keyword detectors (they hide hashes and mentions), IP addresses, private
    keys (it knows only their first line), basic auth (it takes no password with a sign) and JWT
    (it leaves the signature), for which this module has its own.
    """
    # The library imports requests, 90 ms that only an injection should pay.
    from detect_secrets.plugins import (
        artifactory,
        aws,
        azure_storage_key,
        cloudant,
        discord,
        github_token,
        gitlab_token,
        ibm_cloud_iam,
        ibm_cos_hmac,
        mailchimp,
        npm,
        openai,
        pypi_token,
        sendgrid,
        slack,
        softlayer,
        square_oauth,
        stripe,
        telegram_token,
        twilio,
    )

    detectors = (
        artifactory.ArtifactoryDetector,
        aws.AWSKeyDetector,
        azure_storage_key.AzureStorageKeyDetector,
        cloudant.CloudantDetector,
        discord.DiscordBotTokenDetector,
        github_token.GitHubTokenDetector,
        gitlab_token.GitLabTokenDetector,
        ibm_cloud_iam.IbmCloudIamDetector,
        ibm_cos_hmac.IbmCosHmacDetector,
        mailchimp.MailchimpDetector,
        npm.NpmDetector,
        openai.OpenAIDetector,
        pypi_token.PypiTokenDetector,
        sendgrid.SendGridDetector,
        slack.SlackDetector,
        softlayer.SoftlayerDetector,
        square_oauth.SquareOAuthDetector,
        stripe.StripeDetector,
        telegram_token.TelegramBotTokenDetector,
        twilio.TwilioKeyDetector,
    )
    return (*(pattern for detector in detectors for pattern in detector.denylist), *_FORMS)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield ``text`` in overlapping pieces with their places, wide gaps left out."""
    position = 0
    for gap in (*_WIDE_GAP.finditer(text), None):
        stop = gap.start() if gap else len(text)
        while stop - position > _PIECE:
            yield position, text[position : position + _PIECE]
            position += _PIECE - _OVERLAP
        if position < stop:
            yield position, text[position:stop]
        position = gap.end() if gap else stop


def _known(text: str) -> Iterator[Span]:
    """Find tokens by their form; a token that goes on behind the form is hidden as a whole."""
    for place, piece in _pieces(text):
        for pattern in _patterns():
            for match in pattern.finditer(piece):
                group = next((at for at in (1, 2) if _is_value_group(match, at)), 0)
                value = match[group].strip(' \t\r\n"=:')
                start = place + match.start(group) + match[group].index(value)
                end = start + len(value)
                # Inside a longer word it is a part of other data; letters alone are a word.
                inside = start > 0 and text[start - 1].isalnum()
                if not inside and re.search(r"\d", value) and re.search(r"[A-Za-z]", value):
                    rest = _TOKEN_REST.match(text, end)
                    yield start, rest.end() if rest else end


def _is_value_group(match: re.Match[str], group: int) -> bool:
    return match.re.groups >= group and len(match[group] or "") >= _VALUE_GROUP


_JWT = re.compile(r"(?<!\w)eyJ[\w\-]{8,}={0,2}\.[\w\-]{8,}[\w.\-+/=]*")


def _jwts(text: str) -> Iterator[Span]:
    """Find JSON web tokens, signature included, whose head and body are what they should be."""
    from detect_secrets.plugins.jwt import JwtTokenDetector  # see _patterns

    for match in _JWT.finditer(text):
        head_and_body = ".".join(match[0].rstrip(".").split(".")[:2])
        if JwtTokenDetector.is_formally_valid(head_and_body):
            yield match.start(), match.start() + len(match[0].rstrip("."))


# --- values behind a name -----------------------------------------------------------------------

# What a person chooses and what an issuer gives have other names, and other looks.
_CHOSEN = (
    r"pass(?:word|wd|phrase|code)|pwd|passwort|kennwort|mot\ de\ passe|contrase[nñ]a|senha"
    r"|密码|密碼|口令|パスワード|비밀번호"
)
_ISSUED = (
    r"(?:api|secret|access|private|encryption|signing|master|account|storage|shared|licen[cs]e)"
    r"[ _\-]?key|secret|token|credentials?"
)
_NAME = rf"(?:(?P<password>{_CHOSEN})|(?:{_ISSUED}))"
_VALUE = r"(?P<value>[^\s\"'`;<>|]{4,400})"
_VALUE_REST = re.compile(r"[^\s\"'`;<>|]*")
_BEHIND_NAMES = tuple(
    re.compile(pattern, re.VERBOSE | re.IGNORECASE)
    for pattern in (
        # password: …   "token": "…"   **API key:** `…`   | secret | … |   the password is …
        rf"""{_NAME} ["'`*_\]]{{0,3}} [ \t]{{0,15}}
             (?P<by>:=|=>|==?|[:：|]|(?<=[ \t])ist?(?=[ \t]))
             [ \t*_]{{0,15}} (?P<quote>["'`]?) {_VALUE}""",
        # --password …   --api-key=…
        rf"""--[\w\-]{{0,20}}{_NAME} [ \t=]{{1,4}} (?P<quote>["'`]?) {_VALUE}""",
        # ~/.netrc
        rf"""\blogin [ \t]+ \S{{1,100}} [ \t]+ (?P<password>password) [ \t]+ {_VALUE}""",
        # curl -u user:…
        rf"""(?:\s-u|--user) [ \t=]{{1,4}} ["']? [^\s"':]{{1,100}} (?P<password>:) {_VALUE}""",
    )
)
_IN_URL = re.compile(
    r"""[?&#][\w.\-]{0,40}?(?:key|token|secret|password|passwd|pwd|sig|signature|auth)
        =(?P<value>[^\s&#"'`<>()\[\]]{8,400})""",
    re.VERBOSE | re.IGNORECASE,
)
_IN_ADDRESS = re.compile(
    r"""://[^\s/:@"'`<>]{0,100}:(?P<value>[^\s/@"'`<>]{3,200})@(?!sha\d+:)""", re.VERBOSE
)
_IN_HEADER = re.compile(
    r"""\b(?:authorization["']?[ \t]*[:=][ \t]*["']?(?:(?:bearer|(?P<basic>basic)|token|digest
        |api-?key)[ \t]+)?|bearer[ \t]+)(?P<value>[A-Za-z0-9._~+/=\-]{8,400})""",
    re.VERBOSE | re.IGNORECASE,
)
# "passphrase: four or more plain words", and the words that make it a sentence instead.
_PHRASE = re.compile(
    r"""(?:passphrase|(?:seed|recovery)[ ]phrase|mnemonic)["'`*_]{0,3}[ \t]*[:=][ \t*_"'`]{0,6}
        (?P<value>[a-z]{2,12}(?:[ ][a-z]{2,12}){3,23})(?=["'`*_.,]{0,3}[ \t]*(?:\n|$))""",
    re.VERBOSE,
)
_SENTENCE = re.compile(r"\b(?:the|is|are|in|on|at|to|see|a|an|of|for|and|or|with|from|not|by)\b")


def _named(text: str) -> Iterator[Span]:
    """Find what stands behind a name, in a URL or in a header, and looks like a value."""
    for pattern in _BEHIND_NAMES:
        yield from _judged(text, pattern, _is_value, _VALUE_REST)
    yield from _judged(text, _IN_URL, lambda match: _is_token(match["value"], 8))
    yield from _judged(text, _IN_ADDRESS, lambda match: not _refers(match["value"]))
    yield from _judged(text, _IN_HEADER, _is_header_value)
    yield from _judged(text, _PHRASE, lambda match: not _SENTENCE.search(match["value"]))


def _judged(
    text: str,
    pattern: re.Pattern[str],
    judge: Callable[[re.Match[str]], bool],
    rest: re.Pattern[str] | None = None,
) -> Iterator[Span]:
    """Yield the span of each ``value`` that ``judge`` accepts, prolonged by what ``rest`` matches.

    Behind a value that is none the search goes on in front of it: it may hold the next name.
    """
    position = 0
    while match := pattern.search(text, position):
        start, end = match.span("value")
        position = start
        if judge(match):
            more = rest.match(text, end) if rest and end - start >= 400 else None
            end = more.end() if more else end
            value = text[start:end]
            yield start, start + len(value.rstrip(_TRAILING) or value)
            position = end


_TRAILING = ".,:)]}*\\"  # what ends a sentence, a bracket or bold type behind a value


def _is_value(match: re.Match[str]) -> bool:
    """Whether ``match`` of ``_BEHIND_NAMES`` found a password or a token, not a word about one."""
    groups = match.groupdict()
    value = match["value"].rstrip(_TRAILING)
    quoted = bool(groups.get("quote"))
    by = groups.get("by") or " "
    if match.start() and match.string[match.start() - 1] in "?&":
        return False  # part of a URL, where another rule knows where the value ends
    if not groups.get("password"):
        return _is_token(value, 8, literal=quoted)
    after = match.string[match.end("value") : match.end("value") + 80]
    alone = quoted or not after.partition("\n")[0].strip(" \t\r*_,;")
    spaced = match.string[match.start("value") - 1].isspace()
    assigned = quoted or by in (":", "：") or (by == "=" and not spaced)
    return _is_password(value, plain=alone and assigned)


_IDENTIFIER = r"[A-Za-z_]\w*"
_REFERENCE = re.compile(
    rf"""[<{{\[(%@*&/~.\\] | \$[A-Za-z_{{(]                    # a placeholder, a variable, a path
      | {_IDENTIFIER}(?:(?:\?)?(?:\.|::|->){_IDENTIFIER})+[\[(]?.*$  # settings.PASSWORD
      | {_IDENTIFIER}[\[(]                                     # getpass(
      | [A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$                         # DB_PASSWORD
      | (.)\1*$                                                # xxxx
      | \S+@\S+\.[a-z]{{2,}}$                                  # somebody to ask
      | \d{{4}}-\d\d-\d\d                                      # a date
      | .*:// """,
    re.VERBOSE,
)
_PLACEHOLDER = re.compile(
    r"your|example|placeholder|change-?_?me|replace|dummy|redacted|hidden|insert|x{4}|\*{3}|\.{3}"
    r"|^(?:user(?:name)?|pass(?:word|wd)?|pwd?|secret|token|key|api-?_?key|string|none|null)$",
    re.IGNORECASE,
)
_TECHNIQUE = re.compile(
    r"(?:sha-?\d+|md5|argon2\w{0,2}|bcrypt|pbkdf2\w*|base\d+|utf-?\d+|oauth-?\d|[ehr]s\d{3}|aes-?\d+"
    r"|rsa-?\d+|ed25519|1password|u?int\d+|varchar\d*|v?\d+(?:\.\d+)+)(?:[\-_/](?:\w+))*$",
    re.IGNORECASE,
)


def _refers(value: str) -> bool:
    """Whether ``value`` only stands for a value: a variable, a call, a placeholder, a technique."""
    return bool(_REFERENCE.match(value) or _PLACEHOLDER.search(value) or _TECHNIQUE.match(value))


# Words that stand behind "password:" without being one.
_MENTION = frozenset(
    """
    required optional string none null undefined true false unknown empty blank stored saved
    unchanged changed rotated reset expired forgotten missing invalid wrong incorrect correct
    default vault keychain keyring bitwarden lastpass dashlane keepass prompt prompted input value
    field text bytes object number integer boolean hashed encrypted plaintext sensitive masked
    generated random manual disabled enabled allowed denied needed length policy varchar nullable
    authentication login logout session manager protected above below later nothing various
    separate shared private public personal pending unset removed deleted updated strong weak
    """.split()  # noqa: SIM905  (a list of so many literals would be a page)
)
_A_NAME = re.compile(rf"{_CHOSEN}|{_ISSUED}", re.VERBOSE)
_SIGNS = frozenset("!@#$%^&+?~=")


def _is_password(value: str, *, plain: bool) -> bool:
    """Whether a person would choose ``value`` as a password.

    ``plain`` says that nothing else stands there: then letters or digits alone will do.
    """
    if _refers(value):
        return False
    letters = any(letter.isalpha() for letter in value)
    digits = any(letter.isdigit() for letter in value)
    signs = any(letter in _SIGNS for letter in value.rstrip("?!"))
    if letters and (digits or signs):
        return len(value) >= 5
    if not plain:
        return False
    if not letters:
        return digits
    word = value.rstrip("?!").lower()
    names_one = _A_NAME.search(word)
    return len(word) >= 6 and "_" not in word and not names_one and word not in _MENTION


# A part of a name: word, word7, 2nd, k8s. A token has letters and digits in turn.
_NAME_PART = re.compile(r"\d{0,2}[A-Za-z]*\d{0,4}|\d+|[A-Za-z]\d{1,2}[A-Za-z]")


def _is_token(value: str, least: int, *, literal: bool = False) -> bool:
    """Whether ``value`` has at least ``least`` characters of no name that a person would give.

    A ``literal``, a value in quotes, may be one word with digits behind it.
    """
    if len(value) < least or not re.search(r"\d", value) or not re.search(r"[A-Za-z]", value):
        return False
    if _refers(value):
        return False
    parts = re.split(r"[\-_./+=:,%]", value)
    return (literal and len(parts) == 1) or not all(map(_NAME_PART.fullmatch, parts))


def _is_header_value(match: re.Match[str]) -> bool:
    value = match["value"]
    if match["basic"]:  # base64 of user:password, often without a digit
        return value[1:].lower() != value[1:] and value != value.upper() and not _refers(value)
    return _is_token(value, 8)


_FINDERS = (_key_blocks, _known, _jwts, _named)
