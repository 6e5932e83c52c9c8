"""The name of a certificate's subject as Java prints it, and Kafka's rules that make a principal's name of it.

A broker's ACLs and super users name principals so: ``CN=broker1,OU=ops,O=Example``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

#: Keywords of RFC 2253 (``sun.security.x509.AVAKeyword``); any other attribute is printed by its object identifier.
_KEYWORDS = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O",
    "2.5.4.11": "OU", "0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
}  # fmt: skip
_UTC_TIME = 0x17
_SEQUENCE, _SET, _OID, _VERSION = 0x30, 0x31, 0x06, 0xA0
#: UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString: printed as text, all read as UTF-8.
_TEXTS = {0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E}
_SPACES = " \r"


class _Element(NamedTuple):
    tag: int
    body: bytes
    whole: bytes


def _elements(data: bytes) -> Iterator[_Element]:
    """The DER elements that follow one another. Raises ValueError."""
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            raise ValueError("a certificate is cut short")
        tag, length, start = data[at], data[at + 1], at + 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[start : start + count])
            start += count
            if not 1 <= count <= 4:
                raise ValueError("a certificate has an improper length")
        end = start + length
        if end > len(data):
            raise ValueError("a certificate is cut short")
        yield _Element(tag, data[start:end], data[at:end])
        at = end


def distinguished_name(certificate: bytes) -> str:
    """Subject of an X.509 certificate (DER), as ``X500Principal.getName()`` prints it (RFC 2253). Raises ValueError."""
    (whole, *_) = _elements(certificate)
    (signed, *_) = _elements(whole.body)
    fields = [element for element in _elements(signed.body) if element.tag != _VERSION]
    # serial number, signature, issuer, validity, subject
    if len(fields) < 5 or fields[4].tag != _SEQUENCE:
        raise ValueError("a certificate has no subject")
    names = [
        "+".join(_attribute(attribute) for attribute in _elements(relative.body))
        for relative in _elements(fields[4].body)
    ]
    return ",".join(reversed(names))


def not_after(certificate: bytes) -> datetime:
    """Until when an X.509 certificate (DER) is valid. Raises ValueError."""
    (whole, *_) = _elements(certificate)
    (signed, *_) = _elements(whole.body)
    fields = [element for element in _elements(signed.body) if element.tag != _VERSION]
    if len(fields) < 4 or len(times := [*_elements(fields[3].body)]) != 2:
        raise ValueError("a certificate has no validity")
    text = times[1].body.decode("ascii")
    if times[1].tag == _UTC_TIME:
        # RFC 5280: years from 1950 to 2049 have two digits.
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _attribute(attribute: _Element) -> str:
    parts = [*_elements(attribute.body)]
    if len(parts) != 2 or parts[0].tag != _OID:
        raise ValueError("a certificate's subject is malformed")
    identifier = _identifier(parts[0].body)
    keyword, value = _KEYWORDS.get(identifier), parts[1]
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or identifier}=#{value.whole.hex()}"
    text = value.body.decode("utf-8", errors="replace")
    escaped = re.sub(r'[,=+<>#;"\\]', r"\\\g<0>", text).replace("\0", "\\00")
    inner = escaped.strip(_SPACES)
    before, _, after = escaped.partition(inner) if inner else (escaped, "", "")
    return f"{keyword}={_each_escaped(before)}{inner}{_each_escaped(after)}"


def _each_escaped(spaces: str) -> str:
    return "".join("\\" + space for space in spaces)


def _identifier(body: bytes) -> str:
    """An object identifier in dotted decimals. Raises ValueError."""
    numbers, number = [], 0
    for octet in body:
        number = number << 7 | octet & 0x7F
        if not octet & 0x80:
            numbers.append(number)
            number = 0
    if not body or body[-1] & 0x80:
        raise ValueError("a certificate's subject is malformed")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


class _Rule(NamedTuple):
    """``pattern`` None: DEFAULT. ``replacement``: in Python's form. ``case``: L, U or nothing."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""


_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|\Z)")
RULES_ALLOWED = "DEFAULT and RULE:PATTERN/REPLACEMENT/ with L or U or nothing after it, separated by commas"


class PrincipalRules:
    """``ssl.principal.mapping.rules`` (KIP-371): the first rule whose pattern matches the whole name is applied.

    Patterns are Python's regular expressions, which agree with Java's in everything that such rules commonly use.
    Raises ValueError for rules that cannot be read.
    """

    def __init__(self, rules: str = "DEFAULT") -> None:
        self._rules: list[_Rule] = []
        at = 0
        while at < len(rules.rstrip()):
            found = _RULE.match(rules, at)
            if found is None:
                raise ValueError(RULES_ALLOWED)
            at = found.end()
            default, pattern, replacement, case = found.groups()
            try:
                compiled = None if default else re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{RULES_ALLOWED} ({pattern}: {error})") from None
            groups = compiled.groups if compiled else 0
            self._rules.append(_Rule(compiled, _python_template(replacement or "", groups), case or ""))
        if not self._rules:
            raise ValueError(RULES_ALLOWED)

    def name(self, distinguished: str) -> str | None:
        """The principal's name; None: no rule applies, so the connection must be refused."""
        for pattern, replacement, case in self._rules:
            if pattern is None:
                return distinguished
            if pattern.fullmatch(distinguished):
                # Java replaces all matches; after one of the whole name, an empty one at its end may follow.
                found = pattern.sub(replacement, distinguished)
                return {"L": found.lower(), "U": found.upper(), "": found}[case]
        return None


def _python_template(java: str, groups: int) -> str:
    """Java's replacement (``$1``, ``\\$``) as Python's. A reference to a group that is not there stands for itself."""

    def translated(found: re.Match[str]) -> str:
        literal, digits, other = found.groups()
        if digits is not None and (digits == "0" or not digits.startswith("0")):
            kept = digits
            while len(kept) > 1 and int(kept) > groups:
                kept = kept[:-1]
            if int(kept) <= groups:
                return f"\\g<{kept}>{digits[len(kept) :]}"
        text = literal if literal is not None else found.group(0) if other is None else other
        return text.replace("\\", "\\\\")

    return re.sub(r"\\(.)|\$([0-9]{1,3})|(.)", translated, java, flags=re.DOTALL)
