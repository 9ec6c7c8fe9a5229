"""`postroom backup` and `postroom restore`: everything into one file, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from postroom.backup.create import WrittenBackup
from postroom.backup.create import create as create_backup
from postroom.backup.create import verify as verify_backup
from postroom.backup.restore import RestoreResult
from postroom.backup.restore import restore as restore_backup
from postroom.cli.exit_codes import REFUSED
from postroom.cli.filling import explain_stop
from postroom.cli.output import AsJson, echo_err, fields, show
from postroom.cli.progress import progress
from postroom.cli.session import in_loop, interruptible, load_settings, work
from postroom.domain.backup import Manifest
from postroom.domain.message import Message

if TYPE_CHECKING:
    from postroom.settings import Settings
    from postroom.wiring import Parts

_CREATE = "create"


class DefaultToCreate(TyperGroup):
    """`postroom backup TO` is short for `postroom backup create TO`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help"}:
            args = [_CREATE, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=DefaultToCreate,
    help="Back up everything into one file while mail is being sent: `postroom backup TO`.",
    no_args_is_help=True,
)


@app.command(_CREATE)
def create(
    to: Annotated[
        Path,
        typer.Argument(
            metavar="TO", help="A file, or a folder (the file is then named after the time)."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Write everything into one file, while all roles keep running."""
    settings = load_settings()

    async def run(parts: Parts) -> WrittenBackup:
        from postroom.wiring.backups import backup_context

        with progress("Backing up", quiet=as_json) as tick:
            context = backup_context(
                settings,
                parts.storage,
                parts.clock,
                lambda part, done: tick(done, None, f"{part}, {done:,}"),
            )
            return await create_backup(context, to)

    written = work(run)
    manifest = written.manifest
    data = {"file": str(written.path), "bytes": written.size_bytes, **_data(manifest)}
    show(
        data,
        as_json,
        f"{written.path}: {manifest.rows:,} entries, {written.size_bytes:,} bytes.",
        "It contains addresses, password hashes and the secret behind links: keep it as safe as "
        "the storage itself.",
    )


@app.command("verify")
def verify(file: Annotated[Path, typer.Argument(metavar="FILE")], as_json: AsJson = False) -> None:
    """Read a whole backup and compare it with its checksums."""
    from postroom.clock import WallClock
    from postroom.wiring.backups import backup_format

    manifest, damage = in_loop(verify_backup(backup_format(WallClock()), file))
    data = {"file": str(file), "whole": not damage, "damage": damage, **_data(manifest)}
    lines = fields({part.name: part.count for part in manifest.parts})
    about = f"Made {manifest.made_at:%Y-%m-%d %H:%M:%S} UTC by Postroom {manifest.version}"
    show(data, as_json, f"{about} from {manifest.source}.", *lines)
    if damage:
        echo_err(f"{damage} Do not rely on this backup. Use another one.")
        raise typer.Exit(REFUSED)
    if not as_json:
        typer.echo("The backup is complete and undamaged.")


def restore(
    file: Annotated[
        Path, typer.Argument(metavar="FROM", help="A file written by “postroom backup”.")
    ],
    as_json: AsJson = False,
) -> None:
    """Restore a backup into POSTROOM_STORAGE, which must be empty.

    What may have been sent since the backup is held until you decide. If it is interrupted or
    killed, run the same command again.
    """
    restored, made_at = in_loop(_restore(load_settings(), file, as_json=as_json))
    data = {
        "file": str(file),
        "made_at": made_at,
        "held": [
            {"ref": each.ref, "subject": each.subject, **_hold(each)} for each in restored.held
        ],
        "dead_letters": restored.single_mails,
        "parts": restored.parts,
    }
    show(data, as_json, *_lines(restored, f"{made_at:%Y-%m-%d %H:%M:%S} UTC"))


async def _restore(settings: Settings, file: Path, *, as_json: bool) -> tuple[RestoreResult, Any]:
    from postroom.clock import WallClock
    from postroom.wiring.backups import restore_context

    with interruptible() as interrupt, progress("Restoring", quiet=as_json) as tick:
        async with restore_context(
            settings,
            WallClock(),
            file,
            lambda: not interrupt.is_set(),
            lambda stage, done: tick(done, None, f"{stage}, {done:,}"),
        ) as context:
            with explain_stop(
                "The restore stopped.", "Another “postroom restore” is filling this storage."
            ):
                return await restore_backup(context), context.source.manifest.made_at


def _lines(restored: RestoreResult, made_at: str) -> list[str]:
    """What was restored, and what a person has to decide."""
    rows = sum(part.target for part in restored.parts)
    lines = [
        f"Restored {rows:,} entries of the backup of {made_at}. Start the roles.",
        "Anything that happened after the backup is missing: sign-ups, unsubscribes, sent emails.",
    ]
    for each in restored.held:
        people = each.restore_hold.people if each.restore_hold else 0
        lines.append(
            f"Held: message {each.ref} “{each.subject}”. Up to {people:,} people may have received "
            f"it after the backup. “postroom message resume {each.ref}” sends it to everyone not "
            f"recorded as sent, “postroom message cancel {each.ref}” to nobody."
        )
    if restored.single_mails:
        lines.append(
            f"Held: {restored.single_mails:,} confirmations and test emails that were waiting, as "
            "dead letters: “postroom storage dead-letters”."
        )
    return lines


def _hold(message: Message) -> dict[str, object]:
    return {"people": message.restore_hold.people if message.restore_hold else 0}


def _data(manifest: Manifest) -> dict[str, object]:
    return {
        "id": manifest.id,
        "made_at": manifest.made_at,
        "version": manifest.version,
        "source": manifest.source,
        "snapshot": manifest.is_snapshot,
        "parts": manifest.parts,
    }
