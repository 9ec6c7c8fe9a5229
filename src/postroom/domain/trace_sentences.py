"""What each event of the log means, in a sentence for people.

An event that is logged at info or above needs an entry here: tests/unit/test_trace_sentences.py
walks the source. To add one, add a line to the table that fits; `fields("name")` is the value of a
field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from postroom.domain.dead_letter import EXPLANATIONS, Reason
from postroom.domain.texts import Text, _, ngettext
from postroom.domain.trace_entry import FieldValue
from postroom.domain.trouble import TroubleKind
from postroom.domain.trouble import sentence as trouble_sentence

UNKNOWN = "–"  # for a field that an entry of another version does not have


class EventFields:
    """The fields of an event, any of which may be missing."""

    def __init__(self, fields: Mapping[str, FieldValue]) -> None:
        self._fields = fields

    def __call__(self, name: str) -> FieldValue:
        return self._fields.get(name, UNKNOWN)

    def count(self, name: str) -> int:
        value = self._fields.get(name, 0)
        return int(value) if isinstance(value, int | float) else 0

    def all(self) -> str:
        """Every field with its value."""
        return ", ".join(f"{name}={value}" for name, value in self._fields.items())

    def trouble(self) -> Text:
        """What is wrong with the mail server."""
        kind = self("kind")
        known = TroubleKind(kind) if kind in set(TroubleKind) else TroubleKind.BROKEN
        return trouble_sentence(known, str(self("server")), str(self._fields.get("words", "")))

    def burial(self) -> Text:
        reason = self("reason")
        return EXPLANATIONS[Reason(reason) if reason in set(Reason) else Reason.UNKNOWN]


Sentence = Callable[[EventFields], Text]

ROLES: dict[str, Sentence] = {
    "role_started": lambda fields: _(
        "The {role} role started (version {version}).",
        role=fields("name"),
        version=fields("version"),
    ),
    "role_stopped": lambda fields: _("The {role} role stopped.", role=fields("name")),
    "role_failed": lambda fields: _(
        "The {role} role ended with an error: {error}.", role=fields("name"), error=fields("error")
    ),
    "role_died": lambda fields: _(
        "The {role} process exited with code {code}. It restarts in {pause} s.",
        role=fields("role"),
        code=fields("code"),
        pause=fields("restart_s"),
    ),
    "role_not_started": lambda fields: _(
        "The {role} role could not be started: {words}.", role=fields("role"), words=fields("words")
    ),
    "role_hangs": lambda fields: _(
        "The {role} role did not respond for {seconds} s. It was killed and is being restarted.",
        role=fields("role"),
        seconds=fields("silent_s"),
    ),
    "roles_killed": lambda fields: ngettext(
        "{count} role did not stop in time and was killed. Its work will be picked up later.",
        "{count} roles did not stop in time and were killed. Their work will be picked up later.",
        fields.count("roles"),
    ),
    "senders_changed": lambda fields: _(
        "The number of senders changed from {before} to {after}: {reason}",
        before=fields("before"),
        after=fields("after"),
        reason=fields("reason"),
    ),
    "settings_applied": lambda fields: _("Changed settings took effect: {all}.", all=fields.all()),
    "setting_not_applied": lambda fields: _(
        "The changed setting {name} was not applied: {words}",
        name=fields("name"),
        words=fields("words"),
    ),
    "settings_unreadable": lambda fields: _(
        "The changed settings cannot be read, so the previous ones still apply: {words}",
        words=fields("words"),
    ),
    "scheduler_leads": lambda fields: _("This scheduler is now the leader."),
    "scheduler_stands_by": lambda fields: _(
        "Another scheduler is now the leader; this one is on standby."
    ),
    "clock_was_set": lambda fields: _(
        "The clock of this machine was changed by {seconds} s.", seconds=fields("seconds")
    ),
    "storage_calls": lambda fields: _(
        "Storage calls since start-up: {reads} reads, {writes} writes, {batches} batches, "
        "{queue_calls} for queues, {blob_calls} for blobs.",
        reads=fields("reads"),
        writes=fields("writes"),
        batches=fields("batches"),
        queue_calls=fields("queue_calls"),
        blob_calls=fields("blob_calls"),
    ),
    "metrics_shown": lambda fields: _("Metrics are served at {bind}.", bind=fields("bind")),
    "metrics_not_shown": lambda fields: _(
        "Metrics cannot be served at {bind}: {words}.", bind=fields("bind"), words=fields("words")
    ),
    "traces_dropped": lambda fields: ngettext(
        "{count} trace was dropped, because storage did not accept it or there were too many.",
        "{count} traces were dropped, because storage did not accept them or there were too many.",
        fields.count("count"),
    ),
    "spans_not_sent": lambda fields: _(
        "OpenTelemetry is configured, but spans are not sent: {words}.", words=fields("words")
    ),
}

MESSAGES: dict[str, Sentence] = {
    "message_started": lambda fields: _(
        "The message started: its recipients on the list {name} are being queued.",
        name=fields("list"),
    ),
    "message_queued": lambda fields: ngettext(
        "All recipients are queued: {count} person.",
        "All recipients are queued: {count:,} people.",
        fields.count("audience"),
    ),
    "message_taken_over": lambda fields: _(
        "The scheduler continued the message where another one had stopped, after batch {batch}.",
        batch=fields("batch"),
    ),
    "message_completed": lambda fields: ngettext(
        "The message is complete: its only recipient has an outcome.",
        "The message is complete: each of its {count:,} recipients has an outcome.",
        fields.count("audience"),
    ),
    "message_cancelled": lambda fields: ngettext(
        "The message was cancelled. {count} recipient had been queued.",
        "The message was cancelled. {count:,} recipients had been queued.",
        fields.count("audience"),
    ),
    "message_archived": lambda fields: _("The message was moved to the archive."),
    "message_stuck": lambda fields: _(
        "The message cannot continue because of an error in the program ({error}). The log has "
        "the details; other messages are not affected.",
        error=fields("error"),
    ),
    "message_paused_by_refusals": lambda fields: _(
        "The message was paused automatically: {refused} of {ended} emails were refused because "
        "of the sender or the content. Its page shows the servers’ responses.",
        refused=fields("refused"),
        ended=fields("ended"),
    ),
    "message_paused_as_too_large": lambda fields: _(
        "The message was paused automatically: with its attachments, it is too large for the mail "
        "server ({words}). No attempts were used up.",
        words=fields("words"),
    ),
    "forgotten_items_put": lambda fields: ngettext(
        "{count} batch had lost its work item. It was queued again and will be sent.",
        "{count} batches had lost their work items. They were queued again and will be sent.",
        fields.count("items"),
    ),
    "not_expired": lambda fields: _(
        "The archived message cannot be deleted, because it cannot be read: {error}",
        error=fields("error"),
    ),
    "doubts_settled": lambda fields: ngettext(
        "The provider reported the outcome of {count} delivery in doubt.",
        "The provider reported the outcome of {count} deliveries in doubt.",
        fields.count("count"),
    ),
}

SENDING: dict[str, Sentence] = {
    "condition_left_out": lambda fields: _(
        "A condition or loop in message {ref} took too long or became too large for a recipient, "
        "and was left out of their email.",
        ref=fields("ref"),
    ),
    "emails_handed_over": lambda fields: _(
        "Emails handed over in the last {seconds} s: {sent} accepted, {deferred} to be retried, "
        "{rejected} refused for good, {unknown} in doubt.",
        seconds=fields("seconds"),
        sent=fields("sent"),
        deferred=fields("deferred"),
        rejected=fields("rejected"),
        unknown=fields("unknown"),
    ),
    "deliveries_failed": lambda fields: ngettext(
        "{count} delivery of batch {batch} failed for good. The server said: {words}",
        "{count} deliveries of batch {batch} failed for good. For the first one, the server said: "
        "{words}",
        fields.count("count"),
        batch=fields("batch"),
        words=fields("words"),
    ),
    "deliveries_in_doubt": lambda fields: ngettext(
        "{count} delivery of batch {batch} is in doubt: the connection broke before the server "
        "answered. It is sent again or held, according to the message’s policy.",
        "{count} deliveries of batch {batch} are in doubt: the connection broke before the server "
        "answered. They are sent again or held, according to the message’s policy.",
        fields.count("count"),
        batch=fields("batch"),
    ),
    "batch_taken_over": lambda fields: _(
        "Sender {owner} stopped while working on batch {batch}. Another one took over: {known} "
        "deliveries had a known outcome, {again} are sent again, {held} are held for a decision.",
        owner=fields("owner"),
        batch=fields("batch"),
        known=fields("known"),
        again=fields("again"),
        held=fields("held"),
    ),
    "sender_died": lambda fields: ngettext(
        "Sender {owner} died on this machine. Its work has been recovered: {count} batch.",
        "Sender {owner} died on this machine. Its work has been recovered: {count} batches.",
        fields.count("batches_in_hand"),
        owner=fields("owner"),
    ),
    "journal_kept": lambda fields: _(
        "The journal of the dead sender {owner} is kept, because a row cannot be read: {error}",
        owner=fields("owner"),
        error=fields("error"),
    ),
    "item_after_restart": lambda fields: _(
        "Batch {batch} was queued again after an interruption. Its ledger shows who already got "
        "the email.",
        batch=fields("batch"),
    ),
    "item_buried": lambda fields: _("A work item became a dead letter. {why}", why=fields.burial()),
    "item_unreadable": lambda fields: _(
        "A work item is waiting, because its rows were written by a newer version or are damaged."
    ),
    "item_left": lambda fields: _(
        "A work item was left for later, because storage failed ({error}). None of its emails "
        "were sent.",
        error=fields("error"),
    ),
    "lease_not_renewed": lambda fields: _(
        "This sender could not renew its lease ({error}). It hands nothing over until it can.",
        error=fields("error"),
    ),
    "provider_in_trouble": lambda fields: _(
        "{trouble} Retrying after {pause} s.", trouble=fields.trouble(), pause=fields("pause_s")
    ),
    "provider_recovered": lambda fields: _(
        "{server} accepts emails again. The problem had lasted since {since}.",
        server=fields("server"),
        since=fields("since"),
    ),
    "quotas_not_renewed": lambda fields: _(
        "The rate limits could not be read ({error}). Nothing is sent until they can be.",
        error=fields("error"),
    ),
}

PEOPLE: dict[str, Sentence] = {
    "confirmation_not_sent": lambda fields: _(
        "The confirmation email for the list {name} was abandoned after {attempts} attempts "
        "({state}, status {status}). The person’s page shows the server’s response.",
        name=fields("list"),
        attempts=fields("attempts"),
        state=fields("state"),
        status=fields("status"),
    ),
    "confirmation_unreadable": lambda fields: _(
        "A confirmation email for the list {name} is waiting, because a row cannot be read: "
        "{error}",
        name=fields("list"),
        error=fields("error"),
    ),
    "sign_ups_expired": lambda fields: ngettext(
        "{count} sign-up was never confirmed and was deleted.",
        "{count} sign-ups were never confirmed and were deleted.",
        fields.count("people"),
    ),
    "pictures_swept": lambda fields: ngettext(
        "{count} file of a picture that is not in the media library was deleted.",
        "{count} files of pictures that are not in the media library were deleted.",
        fields.count("files"),
    ),
    "asked_to_confirm": lambda fields: ngettext(
        "{count} person on the list {name} was asked to confirm ({status}).",
        "{count:,} people on the list {name} were asked to confirm ({status}).",
        fields.count("asked"),
        name=fields("list"),
        status=fields("status"),
    ),
    "asking_failed": lambda fields: _(
        "Asking people on the list {name} to confirm stopped, because storage failed ({error}).",
        name=fields("list"),
        error=fields("error"),
    ),
    "asking_crashed": lambda fields: _(
        "Asking people to confirm stopped because of an error in the program ({error}).",
        error=fields("error"),
    ),
    "import_ended": lambda fields: _(
        "Import {id} ended: {status}.", id=fields("id"), status=fields("status")
    ),
    "import_delayed": lambda fields: _(
        "Import {id} is waiting, because storage failed ({error}). It will continue automatically.",
        id=fields("id"),
        error=fields("error"),
    ),
    "import_failed": lambda fields: _(
        "Import {id} failed because of an error in the program ({error}).",
        id=fields("id"),
        error=fields("error"),
    ),
    "import_crashed": lambda fields: _(
        "Import {id} stopped because of an error in the program ({error}). It will be retried.",
        id=fields("id"),
        error=fields("error"),
    ),
    "counts_not_folded": lambda fields: _(
        "The counts of the list {name} cannot be updated: {error}",
        name=fields("list"),
        error=fields("error"),
    ),
    "suppression_snapshot": lambda fields: ngettext(
        "The suppression list was saved: {count} address.",
        "The suppression list was saved: {count:,} addresses.",
        fields.count("entries"),
    ),
}

FEEDBACK: dict[str, Sentence] = {
    "feedback_unknown": lambda fields: ngettext(
        "{count} event about an unknown email was ignored.",
        "{count} events about unknown emails were ignored.",
        fields.count("events"),
    ),
    "event_unreadable": lambda fields: _(
        "An event about an email is waiting, because its row cannot be read: {error}",
        error=fields("error"),
    ),
    "webhook_refused": lambda fields: _(
        "A call to the webhook for {provider} was refused: {reason}.",
        provider=fields("provider"),
        reason=fields("reason"),
    ),
    "bounce_mailbox_unavailable": lambda fields: _(
        "The bounce mailbox {mailbox} cannot be read: {words}",
        mailbox=fields("mailbox"),
        words=fields("words"),
    ),
    "bounce_mailbox_failed": lambda fields: _(
        "Reading the bounce mailbox failed because of an error in the program ({error}).",
        error=fields("error"),
    ),
    "returned_mail_unreadable": lambda fields: _(
        "An email in the bounce mailbox could not be parsed ({error}, {size} bytes). It was moved "
        "to the folder for unknown emails.",
        error=fields("error"),
        size=fields("size"),
    ),
    "returned_mails_unknown": lambda fields: ngettext(
        "{count} email in the bounce mailbox is not about any email we sent.",
        "{count} emails in the bounce mailbox are not about any email we sent.",
        fields.count("count"),
    ),
    "events_refused": lambda fields: ngettext(
        "{count} event from the bounce mailbox could not be stored ({error}).",
        "{count} events from the bounce mailbox could not be stored ({error}).",
        fields.count("count"),
        error=fields("error"),
    ),
}

TROUBLE: dict[str, Sentence] = {
    "dead_letters_expired": lambda fields: ngettext(
        "{count} dead letter was deleted, because nobody had dealt with it for {days} days.",
        "{count} dead letters were deleted, because nobody had dealt with them for {days} days.",
        fields.count("items"),
        days=fields("days"),
    ),
    "audit_end_lost": lambda fields: _(
        "The outcome of a change could not be recorded in the audit log ({kind}, {error}).",
        kind=fields("kind"),
        error=fields("error"),
    ),
    "backup_made": lambda fields: _(
        "A backup was made: {file}, {bytes} bytes, in {seconds} s.",
        file=fields("file"),
        bytes=fields("bytes"),
        seconds=fields("took_s"),
    ),
    "backup_failed": lambda fields: _(
        "A backup failed ({failures} failures in a row): {words}",
        failures=fields("failures"),
        words=fields("words"),
    ),
    "storage_failed": lambda fields: _(
        "A call to storage failed ({error}). It will be retried.", error=fields("error")
    ),
    "azure_again": lambda fields: _(
        "A call to Azure Storage will be retried in {pause} s: {why}.",
        pause=fields("pause_s"),
        why=fields("why"),
    ),
    "database_file_gone": lambda fields: _(
        "The database file {file} was deleted or replaced while Postroom was running. Stop all "
        "roles, put it back, and start again.",
        file=fields("file"),
    ),
    "database_file_back": lambda fields: _(
        "The database file {file} is back.", file=fields("file")
    ),
    "row_unreadable": lambda fields: _(
        "A row of the table {table} cannot be read and is skipped: {error}",
        table=fields("table"),
        error=fields("error"),
    ),
    "not_swept": lambda fields: _(
        "Cleaning up ({chore}) failed because of an error in the program ({error}).",
        chore=fields("chore"),
        error=fields("error"),
    ),
    "page_failed": lambda fields: _(
        "A page failed because of an error in the program ({error}, at {at}).",
        error=fields("error"),
        at=fields("at"),
    ),
    "page_too_late": lambda fields: _("A page took too long, and an error page was shown instead."),
    "connection_limit_reached": lambda fields: _(
        "The web role closed {closed} connections, because the limit “{limit}” was reached.",
        closed=fields("closed"),
        limit=fields("limit"),
    ),
    "poll_failed": lambda fields: _(
        "A live page could not be updated, because storage failed ({error}).", error=fields("error")
    ),
    "poll_broken": lambda fields: _(
        "A live page could not be updated because of an error in the program ({error}).",
        error=fields("error"),
    ),
}

SENTENCES = ROLES | MESSAGES | SENDING | PEOPLE | FEEDBACK | TROUBLE


def trace_sentence(event: str, fields: Mapping[str, FieldValue]) -> Text:
    """Return the sentence for an event, or its name and fields if it has none."""
    if event in SENTENCES:
        return SENTENCES[event](EventFields(fields))
    values = EventFields(fields).all()
    return _("{event} {values}", event=event.replace("_", " "), values=values)
