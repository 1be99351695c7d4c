"""What is secret in a text: credentials, tokens, passwords. What goes into a log, span or report is cleared of it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

REDACTED: Final = "[redacted]"

_NAMES: Final = (
    r"passw(?:or)?d|passphrase|secret(?:[_-]?access)?(?:[_-]?key)?|(?:api|access|private)[_-]?key|token|credentials?"
)
_BEGINS: Final = r"(?:(?<![a-z0-9])|(?-i:(?<=[a-z0-9])(?=[A-Z])))"
"""Where a word of a name begins, also in ``authToken``."""
_CREDENTIALS: Final = re.compile(r"(://)[^\s/?#]*@")
_QUERY: Final = re.compile(
    r"([?&][^=&?\s]{0,64}(?:token|key|secret|password|signature|credential)[^=&?\s]{0,64}=)[^&\s]*", re.IGNORECASE
)
"""Names have an end, so that a long text that holds none is looked through once."""
_HEADER: Final = re.compile(
    r"(\bauthorization[\"']?\s*[:=]\s*[\"']?(?:(bearer|basic|token)\s+)?)(?(2)[^\s\"',;}]+|[^\r\n\"'}]+)", re.IGNORECASE
)
"""Of a scheme that is not known everything is left out: where its secret stands is not known either."""
_BEARER: Final = re.compile(r"(\bbearer\s+)\S+", re.IGNORECASE)
_VALUE: Final = r"""\\+["'][^"']*["']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"',;&}]+"""
"""Quoted in a text that is itself quoted, quoted, or up to where it ends."""
_NAMED: Final = re.compile(rf"({_BEGINS}(?:{_NAMES})(?:\\*[\"'])?\s*[:=]\s*)(?:{_VALUE})", re.IGNORECASE)
_SECRET_KEY: Final = re.compile(rf"{_BEGINS}(?:{_NAMES}|authorization)$", re.IGNORECASE)
_HINTS: Final = ("bearer", "authoriz", "passw", "passp", "secret", "token", "key", "credential")
"""What stands in each text that a pattern of a name fits, in small letters. Every record is looked through for them."""


def may_hold_a_secret(text: str) -> bool:
    """Whether what each pattern of a secret needs is in the text. In most texts of a record it is not."""
    if "@" in text or "=" in text:
        return True
    small = text.lower()
    return any([hint in small for hint in _HINTS])  # noqa: C419 - half the time of a generator


def redact(text: str) -> str:
    """The text without credentials in URLs, secrets in queries and headers, and values under the name of a secret."""
    if not may_hold_a_secret(text):
        return text
    text = _CREDENTIALS.sub(rf"\1{REDACTED}@", text)
    text = _QUERY.sub(rf"\1{REDACTED}", text)
    text = _HEADER.sub(rf"\1{REDACTED}", text)
    text = _BEARER.sub(rf"\1{REDACTED}", text)
    return _NAMED.sub(rf"\1{REDACTED}", text)


@lru_cache(maxsize=1024)
def names_a_secret(name: str) -> bool:
    """Whether what stands under this key is not to be told."""
    return _SECRET_KEY.search(name) is not None
