"""Find and read DMARC records as a receiver does, and decide whether two domains are aligned.

The organizational domain is found by walking up the tree of DNS names (RFC 9989), which needs no
list of public suffixes, as RFC 7489 did.
"""

from __future__ import annotations

import msgspec

from postroom.deliverability.dns import DnsAnswer, DnsClient, RecordType
from postroom.mail.dkim_keys import record_tags

VERSION = "v=DMARC1"
POLICIES = ("none", "quarantine", "reject")
LEVELS_MAX = 8  # names asked for one domain


class DmarcRecord(msgspec.Struct, frozen=True):
    domain: str  # where it stands
    policy: str  # for the domain asked about
    mistake: str = ""
    is_dkim_strict: bool = False
    is_spf_strict: bool = False
    is_public_suffix: bool = False  # psd=y: organizations begin below it
    is_top: bool = False  # psd=n: an organization begins here


class DmarcFinding(msgspec.Struct, frozen=True):
    """The record that applies to a domain, if there is one."""

    record: DmarcRecord | None = None
    fault: str = ""  # DNS gave no answer
    organization: str = ""  # the organizational domain, if a record shows it


async def find_dmarc(dns: DnsClient, domain: str) -> DmarcFinding:
    """Find the record of the domain, else the one of its organizational domain."""
    labels = domain.split(".")
    own: DmarcRecord | None = None
    highest: DmarcRecord | None = None
    for skipped in (0, *range(max(1, len(labels) - LEVELS_MAX + 1), len(labels))):
        name = ".".join(labels[skipped:])
        answer = await dns.ask(f"_dmarc.{name}", RecordType.TXT)
        if answer.fault:
            return DmarcFinding(fault=answer.fault)
        record = _record_in(answer, name, is_inherited=skipped > 0)
        if record is None:
            continue
        if skipped == 0:
            own = record
        if record.is_public_suffix and highest is not None:
            break
        highest = record
        if record.is_top:
            break
    return DmarcFinding(own or highest, organization=highest.domain if highest else "")


def is_aligned(one: str, other: str, *, strict: bool, organization: str) -> bool:
    """Whether a domain that SPF or DKIM confirmed counts for a From domain."""
    if one == other:
        return True
    if strict:
        return False
    if one.endswith(f".{other}") or other.endswith(f".{one}"):
        return True
    return bool(organization) and all(
        f".{each}".endswith(f".{organization}") for each in (one, other)
    )


def _record_in(answer: DnsAnswer, domain: str, *, is_inherited: bool) -> DmarcRecord | None:
    records = [each for each in answer.records if each.split(";", 1)[0].strip() == VERSION]
    if not records:
        return None
    if len(records) > 1:
        mistake = f"there are {len(records)} records, so receivers use none of them"
        return DmarcRecord(domain, "", mistake)
    tags = record_tags(records[0])
    policy = tags.get("p", "none").lower()
    mistake = "" if policy in POLICIES else "p= must be none, quarantine or reject"
    if is_inherited and tags.get("sp", "").lower() in POLICIES:
        policy = tags["sp"].lower()
    return DmarcRecord(
        domain,
        policy,
        mistake,
        tags.get("adkim", "r").lower() == "s",
        tags.get("aspf", "r").lower() == "s",
        tags.get("psd", "").lower() == "y",
        tags.get("psd", "").lower() == "n",
    )
