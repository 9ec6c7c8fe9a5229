"""Email addresses: which are accepted, which are the same, and how they are shown.

An address has two spellings. `typed` is for the envelope: the local part as its owner wrote it
(only the receiving server knows whether case matters, RFC 5321 2.4), the domain as A-labels. `key`
identifies the address, so that nobody is on a list twice because of a capital letter. Plus tags and
dots stay in both, because they make different addresses with separate consent.
"""

from __future__ import annotations

import re
import unicodedata

import idna
import msgspec

from postroom.domain.errors import BadInput
from postroom.domain.texts import _, clipped

LOCAL_OCTETS_MAX = 64  # RFC 5321 4.5.3.1.1
DOMAIN_OCTETS_MAX = 255  # RFC 5321 4.5.3.1.2
ADDRESS_OCTETS_MAX = 254  # RFC 5321 4.5.3.1.3: a path of 256 with its angle brackets
NAME_CHARS_MAX = 200  # a display name: longer than any that a mail client shows
STORAGE_KEY_CHARS_MAX = 480  # leaves room for a row key's prefix within storage's 512

# Not allowed in headers, names and addresses: C0, DEL, C1, line separators, lone surrogates.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

# Spaces and zero-width characters that spreadsheets, chats and phones leave around an address.
BLANKS = (
    " \t\r\n\xa0\xad\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u200b\u200c\u200d\u200e\u200f\u202f\u205f\u2060\u3000\ufeff"
)
_ATEXT = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
# The last label starts with a letter, because an IPv4 address is not a domain.
_DOMAIN_PATTERN = rf"(?:{_LABEL}\.)+(?=[A-Za-z]){_LABEL}"
_DOMAIN = re.compile(_DOMAIN_PATTERN)
_PLAIN = re.compile(rf"(?=[^@]{{1,64}}@)({_ATEXT}+(?:\.{_ATEXT}+)*)@({_DOMAIN_PATTERN})")
_ATOM = re.compile(rf"(?:{_ATEXT}|[^\x00-\x7f])+")
_COMPOSED_FROM_MAX = 4  # characters that become one: a Greek letter and three marks
_UNSTORABLE = re.compile(r"[^ -~]|[/\\#?~]")
# Invisible, separating, unassigned and private characters, which nobody can tell apart.
_CATEGORIES_REFUSED = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"))
_MAILBOX = re.compile(r"(?P<name>[^<>]*|\"(?:[^\"\\]|\\.)*\"\s*)<(?P<address>[^<>]*)>")
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"")


class BadAddress(BadInput):
    """Not an address we accept; the message is a sentence for the person who typed it."""


class Address(msgspec.Struct, frozen=True, gc=False):
    """An address that `parse_address` accepted."""

    typed: str
    key: str

    @property
    def local(self) -> str:
        return self.typed.rpartition("@")[0]

    @property
    def domain(self) -> str:
        """Lower case, A-labels."""
        return self.typed.rpartition("@")[2]

    @property
    def needs_utf8(self) -> bool:
        """Whether only a server that offers SMTPUTF8 (RFC 6531) accepts it."""
        return not self.typed.isascii()

    @property
    def storage_key(self) -> str:
        """The key in characters that storage accepts; every other one is `~xx`, byte by byte."""
        return _storable(self.key)


class Mailbox(msgspec.Struct, frozen=True):
    """An address with the name shown before it ("" for none)."""

    name: str
    address: Address


def parse_address(text: str) -> Address:
    """Parse an address as a person typed it, or raise BadAddress."""
    address = _parse_plain(text)
    if address is not None:
        return address
    trimmed = text.strip(BLANKS)
    return _parse_plain(trimmed) or _parse_international(trimmed)


def key_prefix(text: str) -> str:
    """The common beginning of the storage keys of all addresses that begin with this text.

    The A-label of an unfinished label differs from that of the whole label. So if the last label is
    not ASCII, only its "xn--" is certain.
    """
    text = text.strip(BLANKS)
    local, at, domain = text.partition("@")
    *labels, last = domain.split(".")
    try:
        labels = [idna.encode(each, uts46=True, std3_rules=True).decode() for each in labels]
    except UnicodeError:
        raise BadAddress(_("This domain cannot be part of an email address; check it.")) from None
    labels.append(last.lower() if last.isascii() else "xn--")
    prefix = _storable(_folded(unicodedata.normalize("NFC", local)) + at + ".".join(labels))
    if CONTROL.search(text) or len(prefix) > STORAGE_KEY_CHARS_MAX:
        raise BadAddress(_("No email address can begin like this; check it."))
    return prefix


def parse_mailbox(text: str) -> Mailbox:
    """Parse `Name <name@example.org>`, `"Name, quoted" <…>` or a bare address, or BadAddress."""
    trimmed = text.strip(BLANKS)
    if "<" not in trimmed:
        return Mailbox("", parse_address(trimmed))
    found = _MAILBOX.fullmatch(trimmed)
    if found is None:
        raise BadAddress(_("Enter one sender, such as History Department <news@example.org>."))
    name = found["name"].strip(BLANKS)
    if quoted := _QUOTED.fullmatch(name):
        name = re.sub(r"\\(.)", r"\1", quoted[1])
    if CONTROL.search(name):
        raise BadAddress(_("The name contains a control character or line break; type it again."))
    if len(name) > NAME_CHARS_MAX:
        raise BadAddress(
            _("The name is over {limit} characters; shorten it.", limit=NAME_CHARS_MAX)
        )
    return Mailbox(name, parse_address(found["address"]))


def parse_domain(text: str) -> str:
    """Parse a domain name as a person typed it: lower case, as A-labels; or raise BadAddress."""
    domain = text.strip(BLANKS).removesuffix(".")
    if "." not in domain:
        raise BadAddress(
            _("“{text}” is not a domain name such as example.org.", text=clipped(domain, 60))
        )
    return _a_labels(domain)


def mask(address: Address) -> str:
    """Mask an address for a page that others may see, as `s•••••1@contoso.edu`.

    There are always five dots, so not even the length is revealed. Less is shown of local parts of
    up to three characters.
    """
    local = address.local
    first = local[0] if len(local) > 1 else ""
    last = local[-1] if len(local) > 3 else ""
    return f"{first}•••••{last}@{address.domain}"


def readable_address(typed: str) -> str:
    """Show an address as people read it, with müller.example for xn--mller-kva.example."""
    local, at, domain = typed.rpartition("@")
    if "xn--" not in domain:
        return typed
    try:
        readable = idna.decode(domain)
        is_same = idna.encode(readable, uts46=True, std3_rules=True).decode() == domain
    except UnicodeError:  # idna.IDNAError is one
        return typed
    return f"{local}{at}{readable}" if is_same else typed


def _parse_plain(text: str) -> Address | None:
    """The fast path for nearly every address: correct, and in ASCII."""
    if len(text) > ADDRESS_OCTETS_MAX:
        return None
    found = _PLAIN.fullmatch(text)
    if found is None:
        return None
    domain = found[2].lower()
    if "xn--" in domain:
        return None  # only IDNA can tell whether an A-label is valid
    local = found[1]
    return Address(f"{local}@{domain}", f"{local.lower()}@{domain}")


def _parse_international(text: str) -> Address:
    if not text:
        raise BadAddress(_("Enter an email address, such as name@example.org."))
    if CONTROL.search(text):
        raise BadAddress(_("The address has a control character or line break; type it again."))
    if '"' in text or "(" in text or ")" in text:
        raise BadAddress(_("Addresses with quotation marks or comments are not accepted."))
    if "<" in text or ">" in text:
        raise BadAddress(_("Enter only the address, without a name and without < and >."))
    local, at, domain = text.partition("@")
    if not at:
        raise BadAddress(_("The address has no @; enter one such as name@example.org."))
    if "@" in domain:
        raise BadAddress(_("There is more than one @; enter only one address."))
    local = _check_local(local)
    domain = _a_labels(domain)
    typed = f"{local}@{domain}"
    if len(typed.encode()) > ADDRESS_OCTETS_MAX:
        raise BadAddress(
            _("The address is over {limit} bytes; check it.", limit=ADDRESS_OCTETS_MAX)
        )
    key = f"{_folded(local)}@{domain}"
    if len(_storable(key)) > STORAGE_KEY_CHARS_MAX:
        raise BadAddress(_("The part before the @ is too long in this script; check the address."))
    return Address(typed, key)


def _folded(local: str) -> str:
    """Fold case and compose again: folding decomposes some letters, which would not match."""
    return unicodedata.normalize("NFC", local.casefold())


def _check_local(text: str) -> str:
    # Compose first, because some characters compose to ASCII ones that are not allowed here. But do
    # not compose a long text, which can take time quadratic in its length.
    is_long = len(text) > LOCAL_OCTETS_MAX * _COMPOSED_FROM_MAX
    local = text if is_long else unicodedata.normalize("NFC", text)
    if not local:
        raise BadAddress(_("There is nothing before the @; enter the whole address."))
    if is_long or len(local.encode()) > LOCAL_OCTETS_MAX:
        raise BadAddress(
            _("The part before the @ is over {limit} bytes; check it.", limit=LOCAL_OCTETS_MAX)
        )
    if any(unicodedata.category(character) in _CATEGORIES_REFUSED for character in local):
        raise BadAddress(_("There is a space or an invisible character before the @; remove it."))
    atoms = local.split(".")
    if not all(atoms):
        raise BadAddress(_("There is a misplaced dot before the @; check the address."))
    if not all(map(_ATOM.fullmatch, atoms)):
        raise BadAddress(_("A character before the @ is not allowed in addresses; check it."))
    return local


def _a_labels(text: str) -> str:
    """The domain in lower case and, if it is not ASCII, as IDNA2008 A-labels."""
    if text.startswith("["):
        raise BadAddress(_("Addresses at an IP address are not accepted; use a domain name."))
    refusal = BadAddress(_("“{text}” is not a domain name; check it.", text=clipped(text, 60)))
    domain = text
    if not text.isascii() or "xn--" in text.lower():
        try:
            domain = idna.encode(text, uts46=True, std3_rules=True).decode("ascii")
        except UnicodeError:  # idna.IDNAError is one
            raise refusal from None
    if "." not in domain:
        raise BadAddress(_("The part after the @ has no dot, as in example.org; complete it."))
    if len(domain) > DOMAIN_OCTETS_MAX:
        raise BadAddress(_("The domain is over {limit} bytes; check it.", limit=DOMAIN_OCTETS_MAX))
    if not _DOMAIN.fullmatch(domain):
        raise refusal
    return domain.lower()


def _storable(key: str) -> str:
    if _UNSTORABLE.search(key) is None:
        return key
    return _UNSTORABLE.sub(lambda found: "".join(f"~{byte:02x}" for byte in found[0].encode()), key)
