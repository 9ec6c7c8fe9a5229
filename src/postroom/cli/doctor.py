"""`postroom doctor`: what is right, what is wrong, and how to mend it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import AsyncIterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
import typer

from postroom.cli.due import waits_for_scheduler
from postroom.cli.exit_codes import REFUSED
from postroom.cli.output import AsJson, readable, show
from postroom.cli.session import in_loop, load_settings
from postroom.domain.dead_letter import grouped
from postroom.domain.texts import ngettext
from postroom.domain.web_address import mismatch
from postroom.records import dead_letters, leases
from postroom.records.names import MAIL_QUEUE
from postroom.storage.port import StorageError

if TYPE_CHECKING:
    from postroom.settings import Settings
    from postroom.wiring import Parts

OTHERS = stat.S_IRWXG | stat.S_IRWXO  # the rights of anybody but the owner
QUICK_CHECK_BYTES_MAX = 256 * 1024 * 1024  # a second or two; a larger file is not read whole
FREE_BYTES_WRONG = 100 * 1024**2
FREE_BYTES_LOW = 1024**3
SCHEDULER_LEASE = "scheduler"


class CheckResult(StrEnum):
    RIGHT = "right"
    NOTE = "note"  # worth knowing, nothing to mend
    WRONG = "wrong"


class Check(msgspec.Struct, frozen=True):
    verdict: CheckResult
    about: str
    words: str
    mend: str = ""


def doctor(as_json: AsJson = False) -> None:
    """Look for what is wrong and say how to mend it."""
    findings = examine()
    show(findings, as_json, *(line for finding in findings for line in _lines(finding)))
    if any(finding.verdict is CheckResult.WRONG for finding in findings):
        raise typer.Exit(REFUSED)


def examine() -> list[Check]:
    from postroom import wiring
    from postroom.settings import FILE, BadSettings

    try:
        settings = load_settings()
        mistakes = wiring.check(settings)
    except BadSettings as bad:
        mistakes = bad.mistakes
    if mistakes:
        mend = f"Correct it in the environment or in {FILE.absolute()}; docs/settings.md lists all."
        return [Check(CheckResult.WRONG, "settings", mistake, mend) for mistake in mistakes]

    async def collect() -> list[Check]:
        return [finding async for finding in _findings(settings)]

    return in_loop(collect())


async def _findings(settings: Settings) -> AsyncIterator[Check]:
    from postroom import engines, wiring

    yield _settings(settings)
    for name in settings.given:
        yield _setting(settings, name)
    yield _data_folder(settings.data)
    try:
        async with wiring.parts(settings, create_folder=False) as parts:
            await _write_and_read(parts)
            yield Check(CheckResult.RIGHT, "storage", f"{engines.describe_storage(settings)} opens")
            yield await _integrity(settings)
            async for finding in _dead_letters(parts):
                yield finding
            yield await _scheduler(parts)
    except StorageError as error:
        mend = "See POSTROOM_STORAGE, and whether another program has the file or the disk is full."
        if not engines.may_have_storage(settings):
            mend = "“postroom serve” creates it, if this is the right place."
        yield Check(CheckResult.WRONG, "storage", str(error), mend)
    where = engines.storage_path(settings)
    for path in sorted({settings.data.absolute(), where}):
        if is_open_to_others(path):
            yield _open_to_others(path)
    if engines.may_have_storage(settings):
        yield _free_space(where.parent)
    yield _journals(settings)
    yield await _transport(settings)
    yield _url(settings)


def _settings(settings: Settings) -> Check:
    from postroom.settings import FILE

    places = f"the environment, then {FILE.absolute()}, then defaults"
    count = ngettext("{count} is set", "{count} are set", len(settings.given))
    return Check(CheckResult.RIGHT, "settings", f"read from {places}; {count}")


def _setting(settings: Settings, name: str) -> Check:
    """A setting that is not its default, and where it comes from; no secrets."""
    from postroom import engines, wiring

    match name:
        case "storage":
            value = engines.describe_storage(settings)
        case "transport":
            value = wiring.describe_transport(settings)
        case _:
            value = str(getattr(settings, name))
    words = f"POSTROOM_{name.upper()} = {value} (from {settings.origin(name)})"
    return Check(CheckResult.NOTE, "setting", words)


def _data_folder(folder: Path) -> Check:
    """Only looked at: the roles create it."""
    where = folder.absolute()
    if not folder.exists():
        return Check(CheckResult.NOTE, "data folder", f"{where} does not exist; roles create it")
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        mend = "Give this user the right to write there, or set POSTROOM_DATA to another folder."
        return Check(CheckResult.WRONG, "data folder", f"{where} cannot be written", mend)
    return Check(CheckResult.RIGHT, "data folder", f"{where} can be written")


def is_open_to_others(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & OTHERS)
    except OSError:
        return False


def _open_to_others(path: Path) -> Check:
    """Somebody chose these rights, so they are not changed here."""
    mode = "700" if path.is_dir() else "600"
    words = f"other users of this machine may read {path.absolute()}"
    return Check(CheckResult.NOTE, "rights", words, f"chmod {mode} {path.absolute()}")


async def _write_and_read(parts: Parts) -> None:
    """A row of our own, there and gone again."""
    tables, key = parts.storage.tables, f"{os.getpid()}"
    await tables.upsert("service", "doctor", key, {"v": 1})
    await tables.delete("service", "doctor", key)


async def _integrity(settings: Settings) -> Check:
    from postroom import engines

    size = engines.storage_path(settings).stat().st_size
    if size > QUICK_CHECK_BYTES_MAX:
        words = f"the file has {size // 1024**2:,} MiB: too much to look through quickly"
        return Check(CheckResult.NOTE, "integrity", words)
    damage = await engines.storage_damage(settings)
    if damage:
        mend = "Stop Postroom, keep a copy of the file, and restore it from a backup."
        return Check(CheckResult.WRONG, "integrity", damage, mend)
    return Check(CheckResult.RIGHT, "integrity", "the file is undamaged")


def _free_space(folder: Path) -> Check:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        mend = f"Make the folder {folder}, or mount the disk it belongs to."
        return Check(CheckResult.WRONG, "disk", f"{folder}: {error.strerror}", mend)
    words = f"{free // 1024**2:,} MiB free in {folder}"
    if free < FREE_BYTES_WRONG:
        return Check(CheckResult.WRONG, "disk", words, "Make room: a full disk stops everything.")
    return Check(CheckResult.RIGHT if free >= FREE_BYTES_LOW else CheckResult.NOTE, "disk", words)


async def _dead_letters(parts: Parts) -> AsyncIterator[Check]:
    """One for each reason."""
    groups = grouped(await dead_letters.look(parts.storage.queues))
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
    tables, now = parts.storage.tables, parts.clock.now()
    lease = await leases.holder(tables, SCHEDULER_LEASE, now=now)
    if lease:
        return Check(CheckResult.RIGHT, "scheduler", f"{lease.owner} leads")
    waiting = await parts.storage.queues.length(MAIL_QUEUE)
    if waiting or await waits_for_scheduler(tables, now):
        mend = "Start “postroom serve”, or do what is due with “postroom drain”."
        return Check(CheckResult.WRONG, "scheduler", "none runs, and something is due", mend)
    return Check(CheckResult.NOTE, "scheduler", "none runs; nothing is due either")


def _journals(settings: Settings) -> Check:
    from postroom.journal import FileJournals

    dead = FileJournals(settings.data / "journals", "doctor").dead_owners()
    if not dead:
        return Check(CheckResult.RIGHT, "journals", "no sender died with mails in hand")
    words = ngettext(
        "{count} sender died with mails in hand; the next sender here settles them",
        "{count} senders died with mails in hand; the next sender here settles them",
        len(dead),
    )
    return Check(CheckResult.NOTE, "journals", str(words))


async def _transport(settings: Settings) -> Check:
    from postroom import wiring

    way_out = wiring.describe_transport(settings)
    if not wiring.leaves_the_machine(settings):
        return Check(CheckResult.NOTE, "transport", way_out)
    try:
        await wiring.try_transport(settings)
    except wiring.TransportTrouble as error:
        mend = error.advice
        if wiring.may_want_implicit_tls(settings):
            mend = "Port 465 speaks TLS from the start: add ?tls=implicit to POSTROOM_TRANSPORT."
        return Check(CheckResult.WRONG, "transport", str(error), mend)
    return Check(CheckResult.RIGHT, "transport", f"{way_out} answers")


def _url(settings: Settings) -> Check:
    from postroom import wiring

    if why := mismatch(settings.url, settings.bind, is_given=settings.is_url_given):
        return Check(CheckResult.NOTE, "url", str(why))
    if urlsplit(settings.url).scheme == "https":
        return Check(CheckResult.RIGHT, "url", settings.url)
    if not wiring.leaves_the_machine(settings):
        return Check(CheckResult.NOTE, "url", f"{settings.url} is fine for trying things out")
    words = f"{settings.url} is not https: mailbox providers want it for one-click unsubscribe"
    return Check(CheckResult.WRONG, "url", words, "Put https in front of it and set POSTROOM_URL.")


def _lines(finding: Check) -> list[str]:
    lines = [f"{finding.verdict:5}  {finding.about:12}  {finding.words}"]
    return [*lines, f"{'':21}{finding.mend}"] if finding.mend else lines
