"""`postroom doctor`: what is right, what is wrong, and how to fix it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from postroom.cli.due import waits_for_scheduler
from postroom.cli.exit_codes import REFUSED
from postroom.cli.output import AsJson, readable, show
from postroom.cli.session import in_loop, load_settings
from postroom.domain.dead_letter import grouped
from postroom.domain.doctor import Check, CheckResult
from postroom.domain.texts import ngettext
from postroom.domain.web_address import mismatch
from postroom.records import dead_letters, leases, probes
from postroom.records.names import MAIL_QUEUE
from postroom.storage.port import StorageError

if TYPE_CHECKING:
    from postroom.settings import Settings
    from postroom.wiring import Parts

OTHERS = stat.S_IRWXG | stat.S_IRWXO  # permissions of everyone but the owner
FREE_BYTES_WRONG = 100 * 1024**2
FREE_BYTES_LOW = 1024**3


def doctor(as_json: AsJson = False) -> None:
    """Check the installation, and say how to fix what is wrong."""
    findings = examine()
    show(findings, as_json, *(line for finding in findings for line in _lines(finding)))
    if any(finding.verdict is CheckResult.WRONG for finding in findings):
        raise typer.Exit(REFUSED)


def examine() -> list[Check]:
    from postroom.settings import FILE, BadSettings

    try:
        settings = load_settings()
    except BadSettings as bad:
        mend = f"Correct it in the environment or in {FILE.absolute()}; docs/settings.md lists all."
        return [Check(CheckResult.WRONG, "settings", mistake, mend) for mistake in bad.mistakes]

    async def collect() -> list[Check]:
        return [finding async for finding in _findings(settings)]

    return in_loop(collect())


async def _findings(settings: Settings) -> AsyncIterator[Check]:
    from postroom.wiring import open_parts
    from postroom.wiring.engines import engine_of
    from postroom.wiring.transports import transport_of

    yield _settings(settings)
    for name in settings.given:
        yield _setting(settings, name)
    yield _data_folder(settings.data)
    engine = engine_of(settings)
    try:
        async with open_parts(settings, create_folder=False) as parts:
            await probes.write(parts.storage.tables, f"{os.getpid()}")
            yield Check(CheckResult.RIGHT, "storage", f"{engine.description} opens")
            for finding in await engine.examine():
                yield finding
            async for finding in _dead_letters(parts):
                yield finding
            yield await _scheduler(parts)
    except StorageError as error:
        mend = "Check POSTROOM_STORAGE, other programs that use the file, and the free space."
        if not engine.may_exist():
            mend = "“postroom serve” creates it, if this is the right place."
        yield Check(CheckResult.WRONG, "storage", str(error), mend)
    where = engine.path or settings.data.absolute()
    for path in sorted({settings.data.absolute(), where}):
        if is_open_to_others(path):
            yield _open_to_others(path)
    if engine.may_exist():
        yield _free_space(where.parent)
    yield _journals(settings)
    yield await transport_of(settings).examine()
    yield _url(settings)


def _settings(settings: Settings) -> Check:
    from postroom.settings import FILE

    places = f"the environment, then {FILE.absolute()}, then defaults"
    count = ngettext("{count} is set", "{count} are set", len(settings.given))
    return Check(CheckResult.RIGHT, "settings", f"read from {places}; {count}")


def _setting(settings: Settings, name: str) -> Check:
    """A setting that is not the default, and where it comes from; without secrets."""
    from postroom.wiring.engines import engine_of
    from postroom.wiring.transports import transport_of

    match name:
        case "storage":
            value = engine_of(settings).description
        case "transport":
            value = transport_of(settings).description
        case _:
            value = str(getattr(settings, name))
    words = f"POSTROOM_{name.upper()} = {value} (from {settings.origin(name)})"
    return Check(CheckResult.NOTE, "setting", words)


def _data_folder(folder: Path) -> Check:
    """Not created here: the roles create it."""
    where = folder.absolute()
    if not folder.exists():
        return Check(CheckResult.NOTE, "data folder", f"{where} does not exist; roles create it")
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        mend = "Let this user write there, or set POSTROOM_DATA to another folder."
        return Check(CheckResult.WRONG, "data folder", f"{where} cannot be written", mend)
    return Check(CheckResult.RIGHT, "data folder", f"{where} can be written")


def is_open_to_others(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & OTHERS)
    except OSError:
        return False


def _open_to_others(path: Path) -> Check:
    """A person may have chosen these permissions, so they are not changed here."""
    mode = "700" if path.is_dir() else "600"
    words = f"other users of this machine can read {path.absolute()}"
    return Check(CheckResult.NOTE, "rights", words, f"chmod {mode} {path.absolute()}")


def _free_space(folder: Path) -> Check:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        mend = f"Create the folder {folder}, or mount its disk."
        return Check(CheckResult.WRONG, "disk", f"{folder}: {error.strerror}", mend)
    words = f"{free // 1024**2:,} MiB free in {folder}"
    if free < FREE_BYTES_WRONG:
        return Check(
            CheckResult.WRONG, "disk", words, "Free some space: a full disk stops everything."
        )
    return Check(CheckResult.RIGHT if free >= FREE_BYTES_LOW else CheckResult.NOTE, "disk", words)


async def _dead_letters(parts: Parts) -> AsyncIterator[Check]:
    """One finding for each reason."""
    groups = grouped(await dead_letters.oldest(parts.storage.queues))
    if not groups:
        yield Check(CheckResult.RIGHT, "dead letters", "there are none")
    for group in groups:
        items = ngettext("{count} work item set aside", "{count} work items set aside", group.count)
        since = f" since {readable(group.since)}" if group.since else ""
        refs = f" (message {', '.join(group.refs)})" if group.refs else ""
        mend = "“postroom storage dead-letters” lists them; --clear and --requeue deal with them."
        words = f"{items}{since}{refs}. {group.explanation}"
        yield Check(CheckResult.WRONG, "dead letters", words, mend)


async def _scheduler(parts: Parts) -> Check:
    tables = parts.storage.tables
    now = parts.clock.now()
    lease = await leases.holder(tables, leases.SCHEDULER, now=now)
    if lease:
        return Check(CheckResult.RIGHT, "scheduler", f"{lease.owner} is active")
    waiting = await parts.storage.queues.length(MAIL_QUEUE)
    if waiting or await waits_for_scheduler(tables, now):
        mend = "Start “postroom serve”, or do what is due with “postroom drain”."
        return Check(CheckResult.WRONG, "scheduler", "none is running, and something is due", mend)
    return Check(CheckResult.NOTE, "scheduler", "none is running; nothing is due")


def _journals(settings: Settings) -> Check:
    from postroom.sending.journal import FileJournals

    dead = FileJournals(settings.data / "journals", "doctor").dead_owners()
    if not dead:
        return Check(CheckResult.RIGHT, "journals", "no sender died while sending")
    words = ngettext(
        "{count} sender died while sending; the next sender on this machine recovers",
        "{count} senders died while sending; the next sender on this machine recovers",
        len(dead),
    )
    return Check(CheckResult.NOTE, "journals", str(words))


def _url(settings: Settings) -> Check:
    from postroom.wiring.transports import transport_of

    if why := mismatch(settings.url, settings.bind, is_given=settings.is_url_given):
        return Check(CheckResult.NOTE, "url", str(why))
    if urlsplit(settings.url).scheme == "https":
        return Check(CheckResult.RIGHT, "url", settings.url)
    if not transport_of(settings).leaves_the_machine:
        return Check(CheckResult.NOTE, "url", f"{settings.url} is fine for trying things out")
    words = f"{settings.url} is not https, but one-click unsubscribe needs it"
    return Check(CheckResult.WRONG, "url", words, "Serve it over https and set POSTROOM_URL.")


def _lines(finding: Check) -> list[str]:
    lines = [f"{finding.verdict:5}  {finding.about:12}  {finding.words}"]
    return [*lines, f"{'':21}{finding.mend}"] if finding.mend else lines
