"""`postroom doctor --domain`: what receivers find in DNS, asked from a DNS server on loopback."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from postroom.deliverability.checks import SendingPlan, examine_domain
from postroom.deliverability.dns import DnsClient, RecordType, resolver_at
from postroom.domain.doctor import Check, CheckResult
from postroom.domain.errors import BadInput
from postroom.settings import load
from postroom.wiring.transports import transport_of
from postroom_bench.sink import Sink, SinkOptions
from tests.component.typed import Postroom
from tests.dkim_keys import ed25519_key, rsa_key
from tests.dns_server import Zone, dns_server

RIGHT, NOTE, WRONG = CheckResult
KEY = rsa_key()
RELAY = "mail.contoso.edu"


def txt(value: str) -> list[str]:
    parts = [value[at : at + 255] for at in range(0, len(value), 255)]
    return [" ".join(f'"{part}"' for part in parts)]


GOOD: dict[tuple[str, str], list[str]] = {
    ("contoso.edu", "SOA"): ["ns.contoso.edu. hostmaster.contoso.edu. 1 3600 600 86400 60"],
    ("contoso.edu", "TXT"): ['"v=spf1 a:mail.contoso.edu include:_spf.contoso.edu -all"'],
    ("_spf.contoso.edu", "TXT"): ['"v=spf1 ip4:192.0.2.0/24 ip6:2001:db8::/32 ~all"'],
    ("contoso.edu", "MX"): ["20 mx2.contoso.edu.", "10 mx1.contoso.edu."],
    ("mx1.contoso.edu", "A"): ["192.0.2.1"],
    ("mx2.contoso.edu", "A"): ["192.0.2.2"],
    (RELAY, "A"): ["8.8.4.4"],
    (RELAY, "AAAA"): ["2001:4860:4860::8844"],
    ("4.4.8.8.in-addr.arpa", "PTR"): [f"{RELAY}."],
    ("_dmarc.contoso.edu", "TXT"): ['"v=DMARC1; p=quarantine; rua=mailto:dmarc@contoso.edu"'],
    (KEY.record_name, "TXT"): txt(KEY.record),
}
PTR_SIX = "4.4.8.8.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.8.4.0.6.8.4.1.0.0.2.ip6.arpa"
GOOD[PTR_SIX, "PTR"] = [f"{RELAY}."]

PLAN = SendingPlan(
    domain="contoso.edu",
    bounce_domain="contoso.edu",
    keys=(KEY,),
    relay="localhost",
    is_relay_local=True,
    host=RELAY,
    url="https://lists.contoso.edu",
)


async def examine(zone: Zone, plan: SendingPlan = PLAN, *broken: str) -> list[Check]:
    async with dns_server(zone, *broken) as server:
        client = DnsClient(resolver_at(f"127.0.0.1:{server.port}"))
        return [check async for check in examine_domain(plan, client)]


async def found(about: str, zone: Zone, plan: SendingPlan = PLAN, *broken: str) -> list[Check]:
    checks = await examine(zone, plan, *broken)
    assert all(check.fix for check in checks if check.verdict is WRONG), checks
    return [check for check in checks if check.about == about]


def having(**changes: list[str] | None) -> Zone:
    """The good zone with TXT records changed by a short name."""
    names = {
        "spf": "contoso.edu",
        "included": "_spf.contoso.edu",
        "dmarc": "_dmarc.contoso.edu",
        "key": KEY.record_name,
    }
    zone = dict(GOOD)
    for name, records in changes.items():
        zone.pop((names[name], "TXT"))
        if records is not None:
            zone[names[name], "TXT"] = records
    return zone


async def test_a_good_domain_has_nothing_wrong() -> None:
    checks = await examine(GOOD)
    assert {check.verdict for check in checks} == {RIGHT}
    abouts = [check.about for check in checks]
    assert abouts == [
        "spf",
        "spf",
        "dkim",
        "dmarc",
        "alignment",
        "bounces",
        "ptr",
        "ptr",
        "one-click",
    ]
    assert "(2 of 10 lookups)" in checks[0].words


async def test_a_domain_that_does_not_exist_is_one_clear_sentence() -> None:
    [check] = await examine(GOOD, replace(PLAN, domain="nowhere.example"))
    assert check.verdict is WRONG
    assert check.words == "nowhere.example does not exist in DNS"


async def test_a_dns_server_that_cannot_answer_is_one_clear_sentence() -> None:
    [check] = await examine(GOOD, PLAN, "contoso.edu")
    assert check.words == "contoso.edu cannot be looked up: the DNS servers could not answer"
    assert "--dns" in check.fix


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (None, "contoso.edu has no SPF record"),
        (['"v=spf1 -all"', '"v=spf1 mx -all"'], "has 2 SPF records"),
        (['"v=spf1 ip4:192.0.2.300 -all"'], "names no network"),
        (['"v=spf1 ip4:2001:db8::1 -all"'], "the wrong IP version"),
        (['"v=spf1 includes:x.example -all"'], "“includes:x.example” is not an SPF term"),
        (['"v=spf1 include -all"'], "“include” is an incomplete SPF term"),
        (['"v=spf1 include:gone.contoso.edu -all"'], "gone.contoso.edu, which has no SPF record"),
        (['"v=spf1 a:mail.contoso.edu +all"'], "allows everybody"),
        (['"v=spf1 ' + "a:mail.contoso.edu " * 11 + '-all"'], "needs 11 DNS lookups"),
        (['"v=spf1 a:x1.contoso.edu a:x2.contoso.edu mx:x3.contoso.edu ~all"'], "find nothing"),
        (['"v=spf1 ip4:192.0.2.7 -all"'], "(8.8.4.4, 2001:4860:4860::8844) is not covered"),
        (['"v=spf1 include:contoso.edu -all"'], "includes itself"),
    ],
)
async def test_what_is_wrong_with_spf_is_named(record: list[str] | None, words: str) -> None:
    checks = await found("spf", having(spf=record))
    assert any(words in check.words for check in checks if check.verdict is WRONG), checks


@pytest.mark.parametrize(
    "record",
    [
        "v=spf1 ip4:8.8.4.4 ip6:2001:4860:4860::/48 ~all",
        "v=spf1 a:mail.contoso.edu/24//64 -all",
        "v=spf1 redirect=_all.contoso.edu",
        "V=SPF1 ?a:mx1.contoso.edu MX A:mail.contoso.edu exp=why.contoso.edu ~ALL",
        "v=spf1 include:_all.contoso.edu -all",
        "v=spf1 include:_spf.contoso.edu include:_spf.contoso.edu include:_all.contoso.edu -all",
    ],
)
async def test_who_may_send_is_read_as_a_receiver_does(record: str) -> None:
    zone = dict(having(spf=[f'"{record}"']))
    zone["_all.contoso.edu", "TXT"] = ['"v=spf1 a:mail.contoso.edu -all"']
    checks = await found("spf", zone)
    assert [check.verdict for check in checks] == [RIGHT, RIGHT], checks


async def test_a_tree_of_includes_without_end_is_left_early() -> None:
    zone = dict(having(spf=['"v=spf1 include:a0.contoso.edu -all"']))
    for number in range(60):
        below = f"include:a{number + 1}.contoso.edu include:a{number + 2}.contoso.edu"
        zone[f"a{number}.contoso.edu", "TXT"] = [f'"v=spf1 {below} ~all"']
    async with dns_server(zone) as server:
        client = DnsClient(resolver_at(f"127.0.0.1:{server.port}"))
        checks = [check async for check in examine_domain(PLAN, client)]
    assert any("DNS lookups, and receivers stop at 10" in check.words for check in checks)
    assert len(server.asked) < 100


async def test_a_neutral_include_covers_nobody() -> None:
    zone = dict(having(spf=['"v=spf1 include:_all.contoso.edu ~all"']))
    zone["_all.contoso.edu", "TXT"] = ['"v=spf1 ?all"']
    assert [check.verdict for check in await found("spf", zone)] == [RIGHT, WRONG]


async def test_a_provider_is_covered_by_its_include() -> None:
    plan = replace(PLAN, relay="smtp.sendgrid.net", is_relay_local=False)
    checks = await found("spf", GOOD, plan)
    assert checks[1].verdict is NOTE
    assert "include:sendgrid.net is missing" in checks[1].words
    zone = dict(having(spf=['"v=spf1 include:sendgrid.net ~all"']))
    zone["sendgrid.net", "TXT"] = ['"v=spf1 ip4:192.0.2.0/24 ~all"']
    assert [check.verdict for check in await found("spf", zone, plan)] == [RIGHT, RIGHT]


@pytest.mark.parametrize(
    ("record", "verdict", "words"),
    [
        (None, WRONG, "there is no TXT record s1._domainkey.contoso.edu"),
        (txt(rsa_key(selector="s2").record), WRONG, "does not contain the public half"),
        (['"v=DKIM1; k=rsa; p="'], WRONG, "revoked"),
        (['"v=DKIM1; k=rsa; p=no!"'], WRONG, "does not contain the public half"),
        ([*txt(KEY.record), '"v=DKIM1; p=x"'], WRONG, "2 TXT records"),
        (txt(f"{KEY.record}; t=y:s"), NOTE, "t=y"),
        (txt(KEY.record.replace("; ", ";")), RIGHT, "s1 (rsa-sha256) signs"),
    ],
)
async def test_the_record_of_a_key_must_match_it(
    record: list[str] | None, verdict: CheckResult, words: str
) -> None:
    [check] = await found("dkim", having(key=record))
    assert check.verdict is verdict
    assert words in check.words


async def test_a_key_that_does_not_sign_yet_may_lack_its_record() -> None:
    newer, third = rsa_key(selector="s2"), ed25519_key()
    plan = replace(PLAN, keys=(KEY, newer, third))
    assert [check.verdict for check in await found("dkim", GOOD, plan)] == [RIGHT, NOTE, WRONG]
    zone = {**GOOD, (newer.record_name, "TXT"): txt(newer.record)}
    zone[third.record_name, "TXT"] = txt(third.record)
    checks = await found("dkim", zone, plan)
    assert [check.verdict for check in checks] == [RIGHT, RIGHT, RIGHT]
    assert "s2 (rsa-sha256) does not sign yet" in checks[1].words
    assert "e1 (ed25519-sha256) signs" in checks[2].words


@pytest.mark.parametrize(
    ("record", "verdict", "words"),
    [
        (None, WRONG, "has no DMARC record"),
        (['"v=DMARC1; p=none"'], NOTE, "only report"),
        (['"v=DMARC1; p=reject"'], RIGHT, "is reject"),
        (['"v=DMARC1; p=maybe"'], WRONG, "p= must be"),
        (['"v=DMARC1; p=none"', '"v=DMARC1; p=reject"'], WRONG, "2 records"),
        (['"unrelated"', '"v=DMARC1; p=reject"'], RIGHT, "is reject"),
    ],
)
async def test_the_dmarc_policy_is_read(
    record: list[str] | None, verdict: CheckResult, words: str
) -> None:
    [check] = await found("dmarc", having(dmarc=record))
    assert check.verdict is verdict
    assert words in check.words


async def test_a_subdomain_has_the_policy_of_its_organization() -> None:
    zone = {
        **having(dmarc=['"v=DMARC1; p=none; sp=reject"']),
        ("news.contoso.edu", "A"): ["192.0.2.9"],
    }
    plan = replace(PLAN, domain="news.contoso.edu", bounce_domain="contoso.edu", keys=())
    [check] = await found("dmarc", zone, plan)
    assert check.words == "the policy of _dmarc.contoso.edu is reject"


@pytest.mark.parametrize(
    ("bounce_domain", "dmarc", "verdict"),
    [
        ("contoso.edu", "v=DMARC1; p=none; aspf=s", NOTE),
        ("bounces.contoso.edu", "v=DMARC1; p=none", NOTE),
        ("bounces.contoso.edu", "v=DMARC1; p=none; aspf=s", WRONG),
        ("sendgrid.net", "v=DMARC1; p=none", WRONG),
    ],
)
async def test_without_dkim_the_bounce_domain_must_be_aligned(
    bounce_domain: str, dmarc: str, verdict: CheckResult
) -> None:
    plan = replace(PLAN, keys=(), bounce_domain=bounce_domain)
    [check] = await found("alignment", having(dmarc=[f'"{dmarc}"']), plan)
    assert check.verdict is verdict


@pytest.mark.parametrize(
    ("records", "verdict", "words"),
    [
        (["10 mx1.contoso.edu.", "5 mx2.contoso.edu."], RIGHT, "mail server is mx2.contoso.edu"),
        ([], WRONG, "no MX record"),
        (["0 ."], WRONG, "a null MX"),
        (["10 gone.contoso.edu."], WRONG, "have no address: gone.contoso.edu"),
    ],
)
async def test_bounces_must_find_a_server(
    records: list[str], verdict: CheckResult, words: str
) -> None:
    [check] = await found("bounces", {**GOOD, ("contoso.edu", "MX"): records})
    assert check.verdict is verdict
    assert words in check.words


async def test_the_name_of_this_machine_leads_there_and_back() -> None:
    [four, six] = await found("ptr", {**GOOD, ("4.4.8.8.in-addr.arpa", "PTR"): []})
    assert (four.verdict, six.verdict) == (WRONG, RIGHT)
    assert four.words == "8.8.4.4 has no PTR record"
    other = {**GOOD, ("4.4.8.8.in-addr.arpa", "PTR"): ["mx1.contoso.edu."]}
    [four, _] = await found("ptr", other)
    assert four.words == "8.8.4.4 is called mx1.contoso.edu, which has another address"
    [unknown] = await found("ptr", GOOD, replace(PLAN, host="laptop"))
    assert unknown.words == "this machine is called laptop, but it is not in DNS"
    [relayed] = await found("ptr", GOOD, replace(PLAN, relay=RELAY, is_relay_local=False))
    assert relayed.verdict is NOTE


async def test_one_click_needs_https() -> None:
    [check] = await found("one-click", GOOD, replace(PLAN, url="http://lists.contoso.edu"))
    assert check.verdict is WRONG


async def test_every_question_is_asked_once() -> None:
    async with dns_server(GOOD) as server:
        client = DnsClient(resolver_at(f"127.0.0.1:{server.port}"))
        for _ in range(3):
            await client.ask("contoso.edu", RecordType.TXT)
    assert server.asked == [("contoso.edu", "TXT")]


@pytest.mark.parametrize("server", ["localhost", "127.0.0.1:0", "127.0.0.1:x", "", "1.2.3.4:99999"])
def test_a_dns_server_is_an_ip_address(server: str) -> None:
    with pytest.raises(BadInput, match="A DNS server is an IP address"):
        resolver_at(server)


# --- The command ------------------------------------------------------------------------------


@contextmanager
def running_in_a_thread(zone: Zone) -> Iterator[str]:
    """The DNS server beside a command that has its own event loop."""
    ready = threading.Event()
    address: list[str] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with dns_server(zone) as server:
            address.append(f"127.0.0.1:{server.port}")
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(60)
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def test_the_command_prints_what_to_change_and_fails(postroom: Postroom) -> None:
    with running_in_a_thread(having(dmarc=None)) as address:
        ran = postroom("doctor", "--domain", "Contoso.edu", "--dns", address)
        as_json = postroom("doctor", "--domain", "contoso.edu", "--dns", address, "--json")
    assert ran.code == 1
    assert "wrong  dmarc         contoso.edu has no DMARC record" in ran.out
    assert "Add a TXT record _dmarc.contoso.edu: v=DMARC1; p=none" in ran.out
    found_by_about = {check["about"]: check for check in json.loads(as_json.out)}
    assert found_by_about["dmarc"]["verdict"] == "wrong"
    assert found_by_about["dkim"]["verdict"] == "note"


def test_the_command_compares_our_private_key_with_dns(
    postroom: Postroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    created: dict[str, Any] = postroom("dkim", "create", "--domain", "contoso.edu", "--json").json
    name, _, value = created["setting"].partition("=")
    monkeypatch.setenv(name, value)
    zone = {
        **GOOD,
        (created["record_name"], "TXT"): [created["zone_line"].split(" TXT ")[1].strip("()")],
    }
    for records, verdict in ((zone, "right"), (GOOD, "wrong")):
        with running_in_a_thread(records) as address:
            ran = postroom("doctor", "--domain", "contoso.edu", "--dns", address, "--json")
        [check] = [check for check in json.loads(ran.out) if check["about"] == "dkim"]
        assert check["verdict"] == verdict


def test_a_bad_domain_or_dns_server_is_refused(postroom: Postroom) -> None:
    assert "is not a domain name" in postroom("doctor", "--domain", "contoso").err
    ran = postroom("doctor", "--domain", "contoso.edu", "--dns", "ns.contoso.edu")
    assert ran.code == 1
    assert ran.err.startswith("A DNS server is an IP address")
    assert "Use --dns only together with --domain" in postroom("doctor", "--dns", "127.0.0.1").err


@pytest.mark.parametrize(
    ("query", "words", "verdict"),
    [("", "with STARTTLS", RIGHT), ("?tls=none", "is this machine", NOTE)],
)
async def test_the_mail_server_is_asked_for_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, words: str, verdict: CheckResult
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    async with Sink(SinkOptions(tls=context)) as sink:
        url = f"smtp://localhost:{sink.port}{query or '?tls=require'}"
        environ = {
            "POSTROOM_TRANSPORT": url,
            "POSTROOM_SMTP_CA_FILE": str(tmp_path / "ca.pem"),
        }
        check = await transport_of(load(environ, tmp_path / "none.toml")).examine_tls()
    assert check.verdict is verdict
    assert words in check.words
