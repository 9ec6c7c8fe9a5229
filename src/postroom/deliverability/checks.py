"""What a receiver finds when it examines emails from a domain, and what to change."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from postroom.deliverability.dmarc import DmarcFinding, find_dmarc, is_aligned
from postroom.deliverability.dns import DnsAnswer, DnsClient, RecordType
from postroom.deliverability.spf import IpAddress, SpfReader, SpfReading
from postroom.domain.doctor import Check, CheckResult
from postroom.mail.dkim_keys import DkimKey, public_in, record_tags

RIGHT, NOTE, WRONG = CheckResult
NULL_MX = ""  # "." without its dot (RFC 7505): the domain accepts no mail

# What an SPF record includes for a provider's relay, by the end of the relay's name.
PROVIDERS = {
    ".sendgrid.net": "sendgrid.net",
    ".amazonaws.com": "amazonses.com",
    ".azurecomm.net": "spf.protection.outlook.com",
    ".office365.com": "spf.protection.outlook.com",
    ".mailgun.org": "mailgun.org",
    ".postmarkapp.com": "spf.mtasv.net",
    ".brevo.com": "spf.brevo.com",
    ".gmail.com": "_spf.google.com",
}


@dataclass(frozen=True)
class SendingPlan:
    """How emails from a domain are sent, according to the settings."""

    domain: str  # of From, A-labels
    bounce_domain: str  # of the envelope sender
    keys: tuple[DkimKey, ...]  # of this domain; the first of each algorithm signs
    relay: str  # host name or address of the mail server; empty if nothing leaves
    is_relay_local: bool  # the mail server is this machine, which then sends to receivers itself
    host: str  # the name of this machine in EHLO
    url: str


async def examine_domain(plan: SendingPlan, dns: DnsClient) -> AsyncIterator[Check]:
    """Check everything that DNS and the settings show; only a missing domain ends it early."""
    answer = await dns.ask(plan.domain, RecordType.SOA)
    if answer.fault:
        yield _no_answer("domain", plan.domain, answer)
        return
    if not answer.exists:
        fix = "Check the spelling. If it is new, wait until its DNS servers know it."
        yield Check(WRONG, "domain", f"{plan.domain} does not exist in DNS", fix)
        return
    async for check in _check_spf(plan, dns):
        yield check
    async for check in _check_dkim(plan, dns):
        yield check
    async for check in _check_dmarc(plan, dns):
        yield check
    yield await _check_bounces(plan, dns)
    async for check in _check_pointers(plan, dns):
        yield check
    yield _check_one_click(plan)


# --- SPF --------------------------------------------------------------------------------------


async def _check_spf(plan: SendingPlan, dns: DnsClient) -> AsyncIterator[Check]:
    """SPF is about the envelope sender, so it is the bounce domain's record that counts."""
    domain = plan.bounce_domain
    sends_from = await _sending_addresses(plan, dns)
    reading = await SpfReader(dns, sends_from).read(domain)
    if not reading.record and not reading.mistakes:
        fix = f"Add a TXT record to {domain}: v=spf1 {_spf_term(plan)} ~all"
        yield Check(WRONG, "spf", f"{domain} has no SPF record", fix)
        return
    for mistake in dict.fromkeys(reading.mistakes):
        fix = f"Correct the TXT record of {domain} that begins with v=spf1."
        if "lookups" in mistake:
            fix = "Remove includes that you do not need, or replace a and mx with ip4 and ip6."
        yield Check(WRONG, "spf", f"{domain}: {mistake}", fix)
    if reading.mistakes:
        return
    yield _check_spf_end(domain, reading)
    yield _check_spf_covers(plan, reading, sends_from)


async def _sending_addresses(plan: SendingPlan, dns: DnsClient) -> tuple[IpAddress, ...]:
    """The addresses that receivers see, as far as we can know them."""
    host = plan.host if plan.is_relay_local else plan.relay
    try:
        found = [ipaddress.ip_address(host)]
    except ValueError:
        answer = await dns.addresses(host) if host else DnsAnswer()
        found = [ipaddress.ip_address(each) for each in answer.records]
    return tuple(each for each in found if not each.is_loopback)


def _check_spf_end(domain: str, reading: SpfReading) -> Check:
    """Say who may send that the record does not name."""
    ends = [term.qualifier for term in reading.terms if term.name == "all"]
    count = f"{reading.lookups} of 10 lookups"
    if ends == ["+"]:
        fix = "Replace all or +all with ~all."
        return Check(WRONG, "spf", f"{domain} allows everybody to send ({reading.record})", fix)
    if any(term.name == "ptr" for term in reading.terms):
        fix = "Replace ptr with ip4, ip6 or include: receivers may ignore it (RFC 7208 5.5)."
        return Check(NOTE, "spf", f"{domain} uses the mechanism ptr", fix)
    is_redirected = any(term.name == "redirect" for term in reading.terms)
    if not is_redirected and ends not in (["-"], ["~"]):
        fix = "End the record with ~all."
        return Check(NOTE, "spf", f"{domain} does not say what to do with other servers", fix)
    return Check(RIGHT, "spf", f"{domain}: {reading.record} ({count})")


def _check_spf_covers(
    plan: SendingPlan, reading: SpfReading, sends_from: tuple[IpAddress, ...]
) -> Check:
    if not plan.relay:
        return Check(NOTE, "spf", "no mail server is set up, so the sending server is not checked")
    if provider := _provider(plan.relay):
        if provider in reading.included:
            return Check(RIGHT, "spf", f"{plan.relay} is covered by include:{provider}")
        text = f"include:{provider} is missing for {plan.relay}"
        fix = (
            f"Add it, unless the provider uses a bounce address of its own; then DKIM must be "
            f"set up for {plan.domain} there or here."
        )
        return Check(NOTE, "spf", text, fix)
    where = plan.host if plan.is_relay_local else plan.relay
    if not sends_from:
        fix = f"Make sure that the SPF record contains the addresses from which {where} sends."
        return Check(NOTE, "spf", f"the addresses of {where} are not in DNS", fix)
    missing = [str(each) for each in sends_from if not reading.covers(each)]
    if not missing:
        return Check(RIGHT, "spf", f"{where} may send for {plan.bounce_domain}")
    text = f"{where} ({', '.join(missing)}) is not covered"
    if reading.has_macros:
        return Check(NOTE, "spf", f"{text}, as far as this can be checked: the record has macros")
    fix = f"Add {_spf_term(plan)} to the SPF record of {plan.bounce_domain}."
    if plan.is_relay_local:
        return Check(WRONG, "spf", text, fix)
    fix += " If the relay sends from other addresses, add those instead."
    return Check(NOTE, "spf", text, fix)


def _provider(relay: str) -> str:
    return next((value for end, value in PROVIDERS.items() if relay.endswith(end)), "")


def _spf_term(plan: SendingPlan) -> str:
    if provider := _provider(plan.relay):
        return f"include:{provider}"
    where = plan.host if plan.is_relay_local or not plan.relay else plan.relay
    try:
        return f"ip{ipaddress.ip_address(where).version}:{where}"
    except ValueError:
        return f"a:{where}"


# --- DKIM -------------------------------------------------------------------------------------


async def _check_dkim(plan: SendingPlan, dns: DnsClient) -> AsyncIterator[Check]:
    if not plan.keys:
        text = f"Postroom has no key for {plan.domain} and signs none of its emails"
        fix = (
            "If your mail server or provider signs them, you need not do anything. If not: "
            f"postroom dkim create --domain {plan.domain}"
        )
        yield Check(NOTE, "dkim", text, fix)
    algorithms = set()
    for key in plan.keys:
        is_signing = key.algorithm not in algorithms
        algorithms.add(key.algorithm)
        answer = await dns.ask(key.record_name, RecordType.TXT)
        yield _check_key(key, answer, is_signing=is_signing)


def _check_key(key: DkimKey, answer: DnsAnswer, *, is_signing: bool) -> Check:
    """A key that does not sign yet may still be without its record."""
    fix = f"“postroom dkim show --domain {key.domain}” prints the record to add."
    bad = WRONG if is_signing else NOTE
    if answer.fault:
        return _no_answer("dkim", key.record_name, answer)
    if not answer.records:
        return Check(bad, "dkim", f"there is no TXT record {key.record_name}", fix)
    if len(answer.records) > 1:
        text = f"{key.record_name} has {len(answer.records)} TXT records, but only one is allowed"
        return Check(bad, "dkim", text, fix)
    [record] = answer.records
    public = public_in(record)
    if public == b"":
        text = f"{key.record_name} says that the key is revoked (p= is empty)"
        return Check(bad, "dkim", text, "Create a key with another selector.")
    if public != key.public:
        return Check(
            bad, "dkim", f"{key.record_name} does not contain the public half of your key", fix
        )
    if "y" in record_tags(record).get("t", "").split(":"):
        text = f"{key.record_name} is marked as a test (t=y), so receivers ignore signatures"
        return Check(NOTE, "dkim", text, "Remove t=y from the record.")
    what = "signs" if is_signing else "does not sign yet"
    text = f"{key.selector} ({key.algorithm}) {what}; its record matches your private key"
    return Check(RIGHT, "dkim", text)


# --- DMARC ------------------------------------------------------------------------------------


async def _check_dmarc(plan: SendingPlan, dns: DnsClient) -> AsyncIterator[Check]:
    finding = await find_dmarc(dns, plan.domain)
    record = finding.record
    if finding.fault:
        yield _no_answer("dmarc", f"_dmarc.{plan.domain}", DnsAnswer(fault=finding.fault))
        return
    if record is None:
        fix = f"Add a TXT record _dmarc.{plan.domain}: v=DMARC1; p=none"
        text = f"{plan.domain} has no DMARC record; Gmail, Yahoo and Outlook require one"
        yield Check(WRONG, "dmarc", text, fix)
    elif record.mistake:
        fix = f"Correct the TXT record _dmarc.{record.domain}."
        yield Check(WRONG, "dmarc", f"_dmarc.{record.domain}: {record.mistake}", fix)
    elif record.policy == "none":
        text = f"the policy of _dmarc.{record.domain} is none: receivers only report"
        fix = "This is enough to begin with. Later choose p=quarantine, so that nobody can send "
        "in your name."
        yield Check(NOTE, "dmarc", text, fix)
    else:
        text = f"the policy of _dmarc.{record.domain} is {record.policy}"
        yield Check(RIGHT, "dmarc", text)
    yield _check_alignment(plan, finding)


def _check_alignment(plan: SendingPlan, finding: DmarcFinding) -> Check:
    """DMARC passes if SPF or DKIM does so for a domain that is aligned with From."""
    if plan.keys:  # they sign with d= of the From domain, so that is aligned in either mode
        return Check(RIGHT, "alignment", f"DKIM signs with d={plan.domain}, the domain of From")
    is_strict = finding.record is not None and finding.record.is_spf_strict
    if is_aligned(
        plan.bounce_domain,
        plan.domain,
        strict=is_strict,
        organization=finding.organization,
    ):
        text = f"SPF is checked for {plan.bounce_domain}, which is aligned with From"
        fix = "It does not survive forwarding; a DKIM signature does."
        return Check(NOTE, "alignment", text, fix)
    text = f"bounces go to {plan.bounce_domain}, which is not aligned with {plan.domain}"
    fix = f"Sign the emails: postroom dkim create --domain {plan.domain}"
    return Check(WRONG, "alignment", text, fix)


# --- What else receivers look at --------------------------------------------------------------


async def _check_bounces(plan: SendingPlan, dns: DnsClient) -> Check:
    """Whether bounces can be received."""
    domain = plan.bounce_domain
    answer = await dns.ask(domain, RecordType.MX)
    if answer.fault:
        return _no_answer("bounces", domain, answer)
    fix = f"Add an MX record to {domain} that names the server that receives its mail."
    if not answer.records:
        if (await dns.addresses(domain)).records:
            return Check(NOTE, "bounces", f"{domain} has no MX record, only an address", fix)
        return Check(WRONG, "bounces", f"{domain} has no MX record, so bounces are lost", fix)
    if answer.records == (NULL_MX,):
        text = f"{domain} says that it accepts no mail (a null MX), so bounces are lost"
        return Check(WRONG, "bounces", text, fix)
    lost = [host for host in answer.records if not (await dns.addresses(host)).records]
    if len(lost) == len(answer.records):
        text = f"the mail servers of {domain} have no address: {', '.join(lost)}"
        return Check(WRONG, "bounces", text, fix)
    return Check(RIGHT, "bounces", f"they go to {domain}, whose mail server is {answer.records[0]}")


async def _check_pointers(plan: SendingPlan, dns: DnsClient) -> AsyncIterator[Check]:
    """Whether the addresses of this machine have names that lead back to them."""
    if not plan.relay:
        return
    if not plan.is_relay_local:
        yield Check(NOTE, "ptr", f"{plan.relay} sends, so its operator sets its PTR records")
        return
    answer = await dns.addresses(plan.host)
    if not answer.records:
        fix = "Set POSTROOM_SMTP_EHLO_NAME, and the mail server's own name, to one that is in DNS."
        why = answer.fault or "it is not in DNS"
        yield Check(WRONG, "ptr", f"this machine is called {plan.host}, but {why}", fix)
    for address in answer.records:
        if not ipaddress.ip_address(address).is_global:
            text = f"{plan.host} has the private address {address}; check the public one's PTR"
            yield Check(NOTE, "ptr", text)
            continue
        yield await _check_pointer(plan.host, address, dns)


async def _check_pointer(host: str, address: str, dns: DnsClient) -> Check:
    answer = await dns.names_of(address)
    fix = f"Ask the provider of {address} to set its PTR record to {host}."
    if answer.fault:
        return _no_answer("ptr", address, answer)
    if not answer.records:
        return Check(WRONG, "ptr", f"{address} has no PTR record", fix)
    for name in answer.records:
        if address in (await dns.addresses(name)).records:
            return Check(RIGHT, "ptr", f"{address} is {name}, and {name} is {address}")
    text = f"{address} is called {answer.records[0]}, which has another address"
    return Check(WRONG, "ptr", text, fix)


def _check_one_click(plan: SendingPlan) -> Check:
    if urlsplit(plan.url).scheme == "https":
        return Check(RIGHT, "one-click", f"people unsubscribe at {plan.url}")
    verdict = WRONG if plan.relay else NOTE
    text = f"{plan.url} is not https, so emails offer no one-click unsubscribe"
    return Check(verdict, "one-click", text, "Serve it over https and set POSTROOM_URL.")


def _no_answer(about: str, name: str, answer: DnsAnswer) -> Check:
    fix = "Check the DNS of this machine, or name another DNS server with --dns."
    return Check(WRONG, about, f"{name} cannot be looked up: {answer.fault}", fix)
