"""E-mail addresses: which are taken, how each is told from another, how one is shown.

Two spellings live side by side. `typed` is what the envelope carries: the local part as its owner
wrote it (only the receiving server knows whether case matters, RFC 5321 2.4), the domain as
A-labels. `key` is who it is: nobody may be on a list twice by writing a capital letter. Plus tags
and dots stay in both: they are different addresses with different consent.
"""

from __future__ import annotations

import re
import unicodedata

import idna
import msgspec

from postroom.domain.errors import BadInput
from postroom.domain.texts import _

LOCAL_OCTETS_MAX = 64  # RFC 5321 4.5.3.1.1
DOMAIN_OCTETS_MAX = 255  # RFC 5321 4.5.3.1.2
ADDRESS_OCTETS_MAX = 254  # RFC 5321 4.5.3.1.3: a path of 256 with its angle brackets
NAME_CHARS_MAX = 200  # a display name: longer than any that a mail client shows
STORAGE_KEY_CHARS_MAX = 480  # leaves room for a row key's prefix within storage's 512

# What no header, name or address may hold: C0, DEL, C1, line separators, halves of surrogates.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

# Spaces and zero-width characters that spreadsheets, chats and phones leave around an address.
_BLANKS = (
    " \t\r\n\xa0\xad\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u200b\u200c\u200d\u200e\u200f\u202f\u205f\u2060\u3000\ufeff"
)
_ATEXT = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
# The last label starts with a letter: an IPv4 address is not a domain.
_DOMAIN_PATTERN = rf"(?:{_LABEL}\.)+(?=[A-Za-z]){_LABEL}"
_DOMAIN = re.compile(_DOMAIN_PATTERN)
_PLAIN = re.compile(rf"(?=[^@]{{1,64}}@)({_ATEXT}+(?:\.{_ATEXT}+)*)@({_DOMAIN_PATTERN})")
_ATOM = re.compile(rf"(?:{_ATEXT}|[^\x00-\x7f])+")
_COMPOSED_FROM_MAX = 4  # characters that become one: a Greek letter and three marks
_UNSTORABLE = re.compile(r"[^ -~]|[/\\#?~]")
# Invisible, separating, unassigned or private characters: two of them look alike or like nothing.
_CATEGORIES_REFUSED = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"))
_MAILBOX = re.compile(r"(?P<name>[^<>]*|\"(?:[^\"\\]|\\.)*\"\s*)<(?P<address>[^<>]*)>")
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"")


class BadAddress(BadInput):
    """Not an address we take; the message is a sentence for the person who typed it."""


class Address(msgspec.Struct, frozen=True, gc=False):
    """An address that `parse_address` took."""

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
        """A non-ASCII local part: goes only through a server that offers SMTPUTF8 (RFC 6531)."""
        return not self.typed.isascii()

    @property
    def storage_key(self) -> str:
        """The key in the characters storage takes; every other one as `~xx`, byte by byte."""
        return _storable(self.key)


class Mailbox(msgspec.Struct, frozen=True):
    """An address with the name shown before it ("" for none)."""

    name: str
    address: Address


def parse_address(text: str) -> Address:
    """The address a person typed, or BadAddress."""
    address = _plain(text)
    if address is not None:
        return address
    trimmed = text.strip(_BLANKS)
    return _plain(trimmed) or _international(trimmed)


def key_prefix(text: str) -> str:
    """What the storage keys of all addresses begin with that begin with this text.

    Half a label that is not ASCII has an A-label unlike that of the whole: of it only the mark,
    and only once a letter shows what it is.
    """
    text = text.strip(_BLANKS)
    local, at, domain = text.partition("@")
    *labels, last = domain.split(".")
    try:
        labels = [idna.encode(each, uts46=True, std3_rules=True).decode() for each in labels]
    except UnicodeError:
        raise BadAddress(_("No address has such a domain; check it.")) from None
    labels.append(last.lower() if last.isascii() else "xn--")
    begun = _folded(unicodedata.normalize("NFC", local)) + at + ".".join(labels)
    if CONTROL.search(text) or len(_storable(begun)) > STORAGE_KEY_CHARS_MAX:
        raise BadAddress(_("No address begins like that; check it."))
    return _storable(begun)


def parse_mailbox(text: str) -> Mailbox:
    """`Name <name@example.org>`, `"Name, quoted" <…>` or the bare address, or BadAddress."""
    trimmed = text.strip(_BLANKS)
    if "<" not in trimmed:
        return Mailbox("", parse_address(trimmed))
    found = _MAILBOX.fullmatch(trimmed)
    if found is None:
        raise BadAddress(_("Write one sender, as in: History Department <news@example.org>."))
    return Mailbox(_display_name(found["name"].strip(_BLANKS)), parse_address(found["address"]))


def mask(address: Address) -> str:
    """The address for a page that others may see: `s•••••1@contoso.edu`.

    Always five dots, so that not even the length shows; of up to three characters the last stays
    hidden, of one all.
    """
    local = address.local
    first = local[0] if len(local) > 1 else ""
    last = local[-1] if len(local) > 3 else ""
    return f"{first}•••••{last}@{address.domain}"


def readable_address(typed: str) -> str:
    """An address for people to read: müller.example instead of xn--mller-kva.example."""
    local, at, domain = typed.rpartition("@")
    if "xn--" not in domain:
        return typed
    try:
        readable = idna.decode(domain)
        is_same = idna.encode(readable, uts46=True, std3_rules=True).decode() == domain
    except UnicodeError:  # idna.IDNAError is one
        return typed
    return f"{local}{at}{readable}" if is_same else typed


def _plain(text: str) -> Address | None:
    """The quick way for what nearly every address is: ASCII, and right."""
    if len(text) > ADDRESS_OCTETS_MAX:
        return None
    found = _PLAIN.fullmatch(text)
    if found is None:
        return None
    domain = found[2].lower()
    if "xn--" in domain:
        return None  # an A-label: only IDNA can tell whether it stands for something
    local = found[1]
    return Address(f"{local}@{domain}", f"{local.lower()}@{domain}")


def _international(text: str) -> Address:
    local, domain = _halves(text)
    local = _checked_local(local)
    domain = _alabels(domain)
    typed = f"{local}@{domain}"
    if len(typed.encode()) > ADDRESS_OCTETS_MAX:
        raise BadAddress(
            _("This address is longer than {limit} bytes; check it.", limit=ADDRESS_OCTETS_MAX)
        )
    key = f"{_folded(local)}@{domain}"
    if len(_storable(key)) > STORAGE_KEY_CHARS_MAX:
        raise BadAddress(_("The part before the @ is too long in this script; check the address."))
    return Address(typed, key)


def _folded(local: str) -> str:
    """Folding takes some letters apart: composed again, or a capital would be somebody else."""
    return unicodedata.normalize("NFC", local.casefold())


def _halves(text: str) -> tuple[str, str]:
    if not text:
        raise BadAddress(_("Enter an e-mail address, such as name@example.org."))
    if CONTROL.search(text):
        raise BadAddress(
            _("The address contains a control character or line break; type it again.")
        )
    if '"' in text or "(" in text or ")" in text:
        raise BadAddress(_("Addresses with quotation marks or comments are not taken here."))
    if "<" in text or ">" in text:
        raise BadAddress(_("Enter only the address, without a name and without < and >."))
    local, at, domain = text.partition("@")
    if not at:
        raise BadAddress(_("The address has no @; enter one such as name@example.org."))
    if "@" in domain:
        raise BadAddress(_("There is more than one @; enter one address only."))
    return local, domain


def _checked_local(text: str) -> str:
    # Compose first: some characters compose to ASCII ones that are not allowed here. But not a long
    # text: that can take time by the square of its length.
    is_long = len(text) > LOCAL_OCTETS_MAX * _COMPOSED_FROM_MAX
    local = text if is_long else unicodedata.normalize("NFC", text)
    if not local:
        raise BadAddress(_("There is nothing before the @; enter the whole address."))
    if is_long or len(local.encode()) > LOCAL_OCTETS_MAX:
        raise BadAddress(
            _("There are more than {limit} bytes before the @; check it.", limit=LOCAL_OCTETS_MAX)
        )
    if any(unicodedata.category(character) in _CATEGORIES_REFUSED for character in local):
        raise BadAddress(_("There is a space or an invisible character before the @; remove it."))
    if not all(local.split(".")):
        raise BadAddress(_("A dot before the @ stands between two other characters, never alone."))
    for atom in local.split("."):
        if not _ATOM.fullmatch(atom):
            raise BadAddress(_("Before the @ stands a character that no address has; check it."))
    return local


def _alabels(text: str) -> str:
    """The domain in lower case and, where it is not ASCII, as IDNA2008 A-labels."""
    if text.startswith("["):
        raise BadAddress(
            _("Addresses at a bare IP number are not taken; use one with a domain name.")
        )
    domain = text
    if not text.isascii() or "xn--" in text.lower():
        try:
            domain = idna.encode(text, uts46=True, std3_rules=True).decode("ascii")
        except UnicodeError:  # idna.IDNAError is one
            raise BadAddress(
                _("“{text}” is not a domain name; check it.", text=_clipped(text))
            ) from None
    if "." not in domain:
        raise BadAddress(_("The part after the @ has no dot, as in example.org; complete it."))
    if len(domain) > DOMAIN_OCTETS_MAX:
        raise BadAddress(
            _("The domain is longer than {limit} bytes; check it.", limit=DOMAIN_OCTETS_MAX)
        )
    if not _DOMAIN.fullmatch(domain):
        raise BadAddress(_("“{text}” is not a domain name; check it.", text=_clipped(text)))
    return domain.lower()


def _display_name(text: str) -> str:
    quoted = _QUOTED.fullmatch(text)
    name = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else text
    if CONTROL.search(name):
        raise BadAddress(_("The name contains a control character or line break; type it again."))
    if len(name) > NAME_CHARS_MAX:
        raise BadAddress(
            _("The name is longer than {limit} characters; shorten it.", limit=NAME_CHARS_MAX)
        )
    return name


def _storable(key: str) -> str:
    if _UNSTORABLE.search(key) is None:
        return key
    return _UNSTORABLE.sub(lambda found: "".join(f"~{byte:02x}" for byte in found[0].encode()), key)


def _clipped(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
