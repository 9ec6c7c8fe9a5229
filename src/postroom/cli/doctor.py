"""`postroom doctor`: what is right, what is wrong, and how to fix it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from postroom.cli.exit_codes import REFUSED
from postroom.cli.output import AsJson, readable, show
from postroom.cli.session import in_loop, load_settings
from postroom.domain.address import parse_domain
from postroom.domain.dead_letter import grouped
from postroom.domain.doctor import Check, CheckResult
from postroom.domain.errors import BadInput
from postroom.domain.texts import ngettext
from postroom.domain.web_address import mismatch
from postroom.flow.schedule import waits_for_scheduler
from postroom.records import backups, dead_letters, leases, probes
from postroom.records.names import MAIL_QUEUE
from postroom.storage.port import StorageError

if TYPE_CHECKING:
    from postroom.settings import Settings
    from postroom.wiring import Parts

RIGHT, NOTE, WRONG = CheckResult
OTHERS = stat.S_IRWXG | stat.S_IRWXO  # permissions of everyone but the owner
FREE_BYTES_WRONG = 100 * 1024**2
FREE_BYTES_LOW = 1024**3


def doctor(
    domain: Annotated[
        str | None,
        typer.Option(
            "--domain",
            metavar="DOMAIN",
            help="Check instead whether receivers will trust emails from this domain.",
        ),
    ] = None,
    dns: Annotated[
        str | None,
        typer.Option(
            "--dns", metavar="ADDRESS", help="With --domain: the DNS server to ask (IP[:port])."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the installation, and explain how to fix what is wrong."""
    if domain is None and dns is not None:
        raise BadInput("Use --dns only together with --domain.")
    checks = examine() if domain is None else examine_sender_domain(domain, dns)
    lines: list[str] = []
    for check in checks:
        lines.append(f"{check.verdict:5}  {check.about:12}  {check.words}")
        if check.fix:
            lines.append(f"{'':21}{check.fix}")
    show(checks, as_json, *lines)
    if any(check.verdict is WRONG for check in checks):
        raise typer.Exit(REFUSED)


def examine() -> list[Check]:
    from postroom.settings import FILE, BadSettings

    try:
        settings = load_settings()
    except BadSettings as bad:
        fix = f"Correct it in the environment or in {FILE.absolute()}; see docs/settings.md."
        return [Check(WRONG, "settings", mistake, fix) for mistake in bad.mistakes]

    async def collect() -> list[Check]:
        return [check async for check in _checks(settings)]

    return in_loop(collect())


def examine_sender_domain(domain: str, dns_server: str | None = None) -> list[Check]:
    """Examine SPF, DKIM, DMARC and whatever else receivers check for emails from this domain."""
    from postroom.deliverability.checks import examine_domain
    from postroom.deliverability.dns import DnsClient, resolver_at, system_resolver
    from postroom.wiring.sending_plan import sending_plan
    from postroom.wiring.transports import transport_of

    settings = load_settings()
    plan = sending_plan(settings, parse_domain(domain))
    resolver = resolver_at(dns_server) if dns_server else system_resolver()

    async def collect() -> list[Check]:
        checks = [check async for check in examine_domain(plan, DnsClient(resolver))]
        return [*checks, await transport_of(settings).examine_tls()]

    return in_loop(collect())


async def _checks(settings: Settings) -> AsyncIterator[Check]:
    from postroom.wiring import open_parts
    from postroom.wiring.engines import engine_of
    from postroom.wiring.mailboxes import mailbox_of
    from postroom.wiring.transports import transport_of

    engine = engine_of(settings)
    transport = transport_of(settings)
    mailbox = mailbox_of(settings)
    descriptions = {
        "storage": engine.description,
        "transport": transport.description,
        "bounce_mailbox": mailbox.description if mailbox else "none",
    }
    for check in _check_settings(settings, descriptions):
        yield check
    yield _check_data_folder(settings.data)
    try:
        async with open_parts(settings, create_folder=False) as parts:
            await probes.write(parts.storage.tables, f"{os.getpid()}")
            yield Check(RIGHT, "storage", f"{engine.description} can be opened")
            for check in await engine.examine():
                yield check
            async for check in _check_dead_letters(parts):
                yield check
            yield await _check_scheduler(parts)
            if settings.backup_folder:
                yield await _check_backups(parts)
    except StorageError as error:
        fix = "Check POSTROOM_STORAGE, other programs that use the file, and the free space."
        if not engine.may_exist():
            fix = "If this is the right place, “postroom serve” creates it."
        yield Check(WRONG, "storage", str(error), fix)
    where = engine.path or settings.data.absolute()
    for path in sorted({settings.data.absolute(), where}):
        try:
            is_open_to_others = path.stat().st_mode & OTHERS
        except OSError:
            continue
        if is_open_to_others:  # somebody may have chosen this, so it is not changed here
            mode = "700" if path.is_dir() else "600"
            text = f"other users of this machine can read {path.absolute()}"
            yield Check(NOTE, "rights", text, f"chmod {mode} {path.absolute()}")
    if engine.may_exist():
        yield _check_free_space(where.parent)
    yield _check_journals(settings.data / "journals")
    for check in _check_dkim_keys(settings):
        yield check
    yield await transport.examine()
    if mailbox:
        yield await mailbox.examine()
    yield _check_url(settings, leaves_the_machine=transport.leaves_the_machine)


def _check_settings(settings: Settings, descriptions: Mapping[str, str]) -> Iterator[Check]:
    """List the settings that are not the default, and where they come from, without secrets."""
    from postroom.settings import FILE

    places = f"the environment, then {FILE.absolute()}, then defaults"
    count = ngettext("{count} is set", "{count} are set", len(settings.given))
    yield Check(RIGHT, "settings", f"read from {places}; {count}")
    for name in settings.given:
        value = descriptions.get(name, getattr(settings, name))
        text = f"POSTROOM_{name.upper()} = {value} (from {settings.origin(name)})"
        yield Check(NOTE, "setting", text)


def _check_data_folder(folder: Path) -> Check:
    where = folder.absolute()
    if not folder.exists():
        return Check(NOTE, "data folder", f"{where} does not exist; roles create it")
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        fix = "Let this user write there, or set POSTROOM_DATA to another folder."
        return Check(WRONG, "data folder", f"{where} cannot be written", fix)
    return Check(RIGHT, "data folder", f"{where} can be written")


def _check_free_space(folder: Path) -> Check:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        fix = f"Create the folder {folder}, or mount its disk."
        return Check(WRONG, "disk", f"{folder}: {error.strerror}", fix)
    text = f"{free // 1024**2:,} MiB free in {folder}"
    if free < FREE_BYTES_WRONG:
        return Check(WRONG, "disk", text, "Free some space: a full disk stops everything.")
    return Check(RIGHT if free >= FREE_BYTES_LOW else NOTE, "disk", text)


async def _check_dead_letters(parts: Parts) -> AsyncIterator[Check]:
    """Yield one check for each reason."""
    groups = grouped(await dead_letters.oldest(parts.storage.queues))
    if not groups:
        yield Check(RIGHT, "dead letters", "there are none")
    for group in groups:
        items = ngettext("{count} work item set aside", "{count} work items set aside", group.count)
        since = f" since {readable(group.since)}"
        refs = f" (message {', '.join(group.refs)})" if group.refs else ""
        fix = (
            "The page “Queues and dead letters” and “postroom storage dead-letters” list them, put "
            "them back or clear them."
        )
        yield Check(WRONG, "dead letters", f"{items}{since}{refs}. {group.explanation}", fix)


async def _check_backups(parts: Parts) -> Check:
    record = await backups.find(parts.storage.tables)
    if record is None:
        return Check(NOTE, "backups", "no backup yet; the scheduler makes them")
    made = (
        f"the last good one was made {readable(record.made_at)}" if record.made_at else "none yet"
    )
    if record.is_failing:
        text = f"{record.failure} Failures in a row: {record.failures}; {made}"
        return Check(WRONG, "backups", text, "Check POSTROOM_BACKUP_FOLDER and its free space.")
    return Check(RIGHT, "backups", made)


async def _check_scheduler(parts: Parts) -> Check:
    tables = parts.storage.tables
    now = parts.clock.now()
    lease = await leases.holder(tables, leases.SCHEDULER, now=now)
    if lease:
        return Check(RIGHT, "scheduler", f"{lease.owner} is active")
    waiting = await parts.storage.queues.length(MAIL_QUEUE)
    if waiting or await waits_for_scheduler(tables, now):
        fix = "Start “postroom serve”, or do what is due with “postroom drain”."
        return Check(WRONG, "scheduler", "none is running, but work is due", fix)
    return Check(NOTE, "scheduler", "none is running; nothing is due")


def _check_dkim_keys(settings: Settings) -> Iterator[Check]:
    from postroom.domain.dkim import parse_key_places
    from postroom.settings import BadSettings
    from postroom.wiring.dkim import dkim_keys_of

    places = parse_key_places(settings.dkim_keys)
    if not places:
        return
    try:
        dkim_keys_of(settings)
    except BadSettings as bad:
        fix = "Correct it, or let this user read the file: senders do not start without it."
        yield Check(WRONG, "dkim keys", str(bad), fix)
        return
    domains = ", ".join(dict.fromkeys(place.domain for place in places))
    yield Check(RIGHT, "dkim keys", f"emails from {domains} are signed; see doctor --domain")
    for path in sorted({place.path for place in places}):
        if Path(path).stat().st_mode & OTHERS:  # secrets in a container often are readable
            text = f"other users of this machine can read {path}"
            yield Check(NOTE, "rights", text, f"chmod 600 {path}")


def _check_journals(folder: Path) -> Check:
    from postroom.sending.journal import FileJournals

    dead = FileJournals(folder, "doctor").dead_owners()
    if not dead:
        return Check(RIGHT, "journals", "no sender died while sending")
    text = ngettext(
        "{count} sender died while sending; the next sender on this machine recovers its work",
        "{count} senders died while sending; the next sender on this machine recovers their work",
        len(dead),
    )
    return Check(NOTE, "journals", str(text))


def _check_url(settings: Settings, *, leaves_the_machine: bool) -> Check:
    if why := mismatch(settings.url, settings.bind, is_given=settings.is_url_given):
        return Check(NOTE, "url", str(why))
    if urlsplit(settings.url).scheme == "https":
        return Check(RIGHT, "url", settings.url)
    if not leaves_the_machine:
        return Check(NOTE, "url", f"{settings.url} is fine for trying things out")
    text = f"{settings.url} is not https, but one-click unsubscribe needs it"
    return Check(WRONG, "url", text, "Serve it over https and set POSTROOM_URL.")
