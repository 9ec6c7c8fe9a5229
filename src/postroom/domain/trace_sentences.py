"""What each event of the log means, in a sentence for people.

An event that is logged at info or above needs an entry here: tests/unit/test_trace_sentences.py
walks the source. To add one, add a line to the table that fits; `said` gives the value of a field.
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
    """The fields of an event, of which any may be missing."""

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
    "role_started": lambda said: _(
        "The {role} role started (version {version}).", role=said("name"), version=said("version")
    ),
    "role_stopped": lambda said: _("The {role} role stopped.", role=said("name")),
    "role_failed": lambda said: _(
        "The {role} role ended with an error: {error}.", role=said("name"), error=said("error")
    ),
    "role_died": lambda said: _(
        "The process of the {role} role ended with code {code}. It is started again after {pause} "
        "s.",
        role=said("role"),
        code=said("code"),
        pause=said("restart_s"),
    ),
    "role_not_started": lambda said: _(
        "The {role} role could not be started: {words}.", role=said("role"), words=said("words")
    ),
    "role_hangs": lambda said: _(
        "The {role} role did not respond for {seconds} s. It was killed and is being restarted.",
        role=said("role"),
        seconds=said("silent_s"),
    ),
    "roles_killed": lambda said: ngettext(
        "{count} role did not stop in time and was ended. What it had in hand is picked up later.",
        "{count} roles did not stop in time and were ended. What they had in hand is picked up "
        "later.",
        said.count("roles"),
    ),
    "senders_changed": lambda said: _(
        "The number of senders changed from {before} to {after}: {reason}",
        before=said("before"),
        after=said("after"),
        reason=said("reason"),
    ),
    "settings_applied": lambda said: _("Changed settings took effect: {all}.", all=said.all()),
    "setting_not_applied": lambda said: _(
        "The changed setting {name} was not applied: {words}",
        name=said("name"),
        words=said("words"),
    ),
    "settings_unreadable": lambda said: _(
        "The changed settings cannot be read, so the ones before still count: {words}",
        words=said("words"),
    ),
    "scheduler_leads": lambda said: _("This scheduler leads now: it takes messages further."),
    "scheduler_stands_by": lambda said: _("Another scheduler leads now; this one stands by."),
    "clock_was_set": lambda said: _(
        "The clock of this machine was set by {seconds} s.", seconds=said("seconds")
    ),
    "storage_calls": lambda said: _(
        "Calls to storage since the start: {reads} reads, {writes} writes, {batches} batches, "
        "{queue_calls} for queues, {blob_calls} for blobs.",
        reads=said("reads"),
        writes=said("writes"),
        batches=said("batches"),
        queue_calls=said("queue_calls"),
        blob_calls=said("blob_calls"),
    ),
    "metrics_shown": lambda said: _("Metrics are served at {bind}.", bind=said("bind")),
    "metrics_not_shown": lambda said: _(
        "Metrics cannot be served at {bind}: {words}.", bind=said("bind"), words=said("words")
    ),
    "traces_dropped": lambda said: ngettext(
        "{count} trace was left out, because storage did not take it or there were too many.",
        "{count} traces were left out, because storage did not take them or there were too many.",
        said.count("count"),
    ),
    "spans_not_sent": lambda said: _(
        "OpenTelemetry is configured, but spans are not sent: {words}.", words=said("words")
    ),
}

MESSAGES: dict[str, Sentence] = {
    "message_started": lambda said: _(
        "The message started: its recipients on the list {name} are being collected.",
        name=said("list"),
    ),
    "message_queued": lambda said: ngettext(
        "All recipients are queued: {count} person.",
        "All recipients are queued: {count:,} people.",
        said.count("audience"),
    ),
    "message_taken_over": lambda said: _(
        "The scheduler continued the message where another one had stopped, after batch {batch}.",
        batch=said("batch"),
    ),
    "message_completed": lambda said: ngettext(
        "The message is complete: its one recipient has an outcome.",
        "The message is complete: each of its {count:,} recipients has an outcome.",
        said.count("audience"),
    ),
    "message_cancelled": lambda said: ngettext(
        "The message was cancelled. {count} recipient had been queued.",
        "The message was cancelled. {count:,} recipients had been queued.",
        said.count("audience"),
    ),
    "message_archived": lambda said: _("The message was moved to the archive."),
    "message_stuck": lambda said: _(
        "The message cannot continue because of an error in the program ({error}). The log has "
        "the details; other messages go on.",
        error=said("error"),
    ),
    "message_paused_by_refusals": lambda said: _(
        "The message paused itself: {refused} of {ended} emails were refused for reasons on our "
        "side. See its page for the words of the servers.",
        refused=said("refused"),
        ended=said("ended"),
    ),
    "forgotten_items_put": lambda said: ngettext(
        "{count} batch had no work item any more. It has one again, and is sent.",
        "{count} batches had no work item any more. They have one again, and are sent.",
        said.count("items"),
    ),
    "not_expired": lambda said: _(
        "The archived message cannot be deleted, because it cannot be read: {error}",
        error=said("error"),
    ),
    "doubts_settled": lambda said: ngettext(
        "The provider reported what became of {count} delivery in doubt.",
        "The provider reported what became of {count} deliveries in doubt.",
        said.count("count"),
    ),
}

SENDING: dict[str, Sentence] = {
    "emails_handed_over": lambda said: _(
        "Emails handed over in the last {seconds} s: {sent} accepted, {deferred} to be retried, "
        "{rejected} refused for good, {unknown} in doubt.",
        seconds=said("seconds"),
        sent=said("sent"),
        deferred=said("deferred"),
        rejected=said("rejected"),
        unknown=said("unknown"),
    ),
    "deliveries_failed": lambda said: ngettext(
        "{count} delivery of batch {batch} failed for good. The server said: {words}",
        "{count} deliveries of batch {batch} failed for good. About the first, the server said: "
        "{words}",
        said.count("count"),
        batch=said("batch"),
        words=said("words"),
    ),
    "deliveries_in_doubt": lambda said: ngettext(
        "{count} delivery of batch {batch} is in doubt: the connection broke before the server "
        "answered. It is sent again or held, as the message says.",
        "{count} deliveries of batch {batch} are in doubt: the connection broke before the server "
        "answered. They are sent again or held, as the message says.",
        said.count("count"),
        batch=said("batch"),
    ),
    "batch_taken_over": lambda said: _(
        "Sender {owner} stopped while it had batch {batch}. Another one took over: {known} "
        "deliveries had a known outcome, {again} are sent again, {held} are held for a decision.",
        owner=said("owner"),
        batch=said("batch"),
        known=said("known"),
        again=said("again"),
        held=said("held"),
    ),
    "sender_died": lambda said: ngettext(
        "Sender {owner} died on this machine. What it had in hand is settled: {count} batch.",
        "Sender {owner} died on this machine. What it had in hand is settled: {count} batches.",
        said.count("batches_in_hand"),
        owner=said("owner"),
    ),
    "journal_kept": lambda said: _(
        "The journal of the dead sender {owner} is kept, because a row cannot be read: {error}",
        owner=said("owner"),
        error=said("error"),
    ),
    "item_after_restart": lambda said: _(
        "Batch {batch} was queued again after a restart. Its ledger shows who was sent to already.",
        batch=said("batch"),
    ),
    "item_buried": lambda said: _("A work item became a dead letter. {why}", why=said.burial()),
    "item_unreadable": lambda said: _(
        "A work item waits, because its rows were written by a newer version or are damaged."
    ),
    "item_left": lambda said: _(
        "A work item was left for later, because storage failed ({error}). Nothing of it was sent.",
        error=said("error"),
    ),
    "lease_not_renewed": lambda said: _(
        "This sender could not renew its lease ({error}). It hands nothing over until it can.",
        error=said("error"),
    ),
    "provider_in_trouble": lambda said: _(
        "{trouble} Tried again after {pause} s.", trouble=said.trouble(), pause=said("pause_s")
    ),
    "provider_recovered": lambda said: _(
        "{server} accepts emails again. It was in trouble since {since}.",
        server=said("server"),
        since=said("since"),
    ),
    "quotas_not_renewed": lambda said: _(
        "The rate limits could not be read ({error}). Nothing is sent until they can.",
        error=said("error"),
    ),
}

PEOPLE: dict[str, Sentence] = {
    "confirmation_not_sent": lambda said: _(
        "The confirmation email for the list {name} was given up after {attempts} attempts "
        "({state}, status {status}). The person’s page has the words of the server.",
        name=said("list"),
        attempts=said("attempts"),
        state=said("state"),
        status=said("status"),
    ),
    "confirmation_unreadable": lambda said: _(
        "A confirmation email for the list {name} waits, because a row cannot be read: {error}",
        name=said("list"),
        error=said("error"),
    ),
    "sign_ups_expired": lambda said: ngettext(
        "{count} sign-up was never confirmed and was deleted.",
        "{count} sign-ups were never confirmed and were deleted.",
        said.count("people"),
    ),
    "asked_to_confirm": lambda said: ngettext(
        "{count} person on the list {name} was asked to confirm ({status}).",
        "{count:,} people on the list {name} were asked to confirm ({status}).",
        said.count("asked"),
        name=said("list"),
        status=said("status"),
    ),
    "asking_failed": lambda said: _(
        "Asking people on the list {name} to confirm stopped, because storage failed ({error}).",
        name=said("list"),
        error=said("error"),
    ),
    "asking_crashed": lambda said: _(
        "Asking people to confirm stopped because of an error in the program ({error}).",
        error=said("error"),
    ),
    "import_ended": lambda said: _(
        "Import {id} ended: {status}.", id=said("id"), status=said("status")
    ),
    "import_delayed": lambda said: _(
        "Import {id} waits, because storage failed ({error}). It continues by itself.",
        id=said("id"),
        error=said("error"),
    ),
    "import_failed": lambda said: _(
        "Import {id} failed because of an error in the program ({error}).",
        id=said("id"),
        error=said("error"),
    ),
    "import_crashed": lambda said: _(
        "Import {id} stopped because of an error in the program ({error}). It is tried again.",
        id=said("id"),
        error=said("error"),
    ),
    "counts_not_folded": lambda said: _(
        "The counts of the list {name} cannot be updated: {error}",
        name=said("list"),
        error=said("error"),
    ),
    "suppression_snapshot": lambda said: ngettext(
        "The suppression list was saved: {count} address.",
        "The suppression list was saved: {count:,} addresses.",
        said.count("entries"),
    ),
}

FEEDBACK: dict[str, Sentence] = {
    "feedback_unknown": lambda said: ngettext(
        "{count} event about an email we do not know was ignored.",
        "{count} events about emails we do not know were ignored.",
        said.count("events"),
    ),
    "event_unreadable": lambda said: _(
        "An event about an email waits, because its row cannot be read: {error}",
        error=said("error"),
    ),
    "webhook_refused": lambda said: _(
        "A call to the webhook for {provider} was refused: {reason}.",
        provider=said("provider"),
        reason=said("reason"),
    ),
    "bounce_mailbox_unavailable": lambda said: _(
        "The bounce mailbox {mailbox} cannot be read: {words}",
        mailbox=said("mailbox"),
        words=said("words"),
    ),
    "bounce_mailbox_failed": lambda said: _(
        "Reading the bounce mailbox failed because of an error in the program ({error}).",
        error=said("error"),
    ),
    "returned_mail_unreadable": lambda said: _(
        "A mail in the bounce mailbox could not be understood ({error}, {size} bytes). It was put "
        "away.",
        error=said("error"),
        size=said("size"),
    ),
    "returned_mails_unknown": lambda said: ngettext(
        "{count} mail in the bounce mailbox is about no email of ours.",
        "{count} mails in the bounce mailbox are about no email of ours.",
        said.count("count"),
    ),
    "events_refused": lambda said: ngettext(
        "{count} event from the bounce mailbox could not be stored ({error}).",
        "{count} events from the bounce mailbox could not be stored ({error}).",
        said.count("count"),
        error=said("error"),
    ),
}

TROUBLE: dict[str, Sentence] = {
    "dead_letters_expired": lambda said: ngettext(
        "{count} dead letter was deleted, because nobody dealt with it for {days} days.",
        "{count} dead letters were deleted, because nobody dealt with them for {days} days.",
        said.count("items"),
        days=said("days"),
    ),
    "audit_end_lost": lambda said: _(
        "The audit log could not note how a change ended ({kind}, {error}).",
        kind=said("kind"),
        error=said("error"),
    ),
    "backup_made": lambda said: _(
        "A backup was made: {file}, {bytes} bytes, in {seconds} s.",
        file=said("file"),
        bytes=said("bytes"),
        seconds=said("took_s"),
    ),
    "backup_failed": lambda said: _(
        "A backup failed, for the {failures}. time in a row: {words}",
        failures=said("failures"),
        words=said("words"),
    ),
    "storage_failed": lambda said: _(
        "Storage did not do what it was asked ({error}). It is tried again.", error=said("error")
    ),
    "azure_again": lambda said: _(
        "The call to Azure Storage is retried after {pause} s: {why}.",
        pause=said("pause_s"),
        why=said("why"),
    ),
    "database_file_gone": lambda said: _(
        "The database file {file} was deleted or replaced while Postroom was running. Stop all "
        "roles, put it back, and start again.",
        file=said("file"),
    ),
    "database_file_back": lambda said: _("The database file {file} is back.", file=said("file")),
    "row_unreadable": lambda said: _(
        "A row of the table {table} cannot be read and is passed over: {error}",
        table=said("table"),
        error=said("error"),
    ),
    "not_swept": lambda said: _(
        "Cleaning up ({chore}) failed because of an error in the program ({error}).",
        chore=said("chore"),
        error=said("error"),
    ),
    "page_failed": lambda said: _(
        "A page failed because of an error in the program ({error}, at {at}).",
        error=said("error"),
        at=said("at"),
    ),
    "page_too_late": lambda said: _("A page took too long, and an apology was shown instead."),
    "connection_limit_reached": lambda said: _(
        "The web role closed {closed} connections, because the limit “{limit}” was reached.",
        closed=said("closed"),
        limit=said("limit"),
    ),
    "poll_failed": lambda said: _(
        "A live page could not be updated, because storage failed ({error}).", error=said("error")
    ),
    "poll_broken": lambda said: _(
        "A live page could not be updated because of an error in the program ({error}).",
        error=said("error"),
    ),
}

SENTENCES = ROLES | MESSAGES | SENDING | PEOPLE | FEEDBACK | TROUBLE


def trace_sentence(event: str, fields: Mapping[str, FieldValue]) -> Text:
    """Return the sentence of an event; of one without, its name and fields."""
    if event in SENTENCES:
        return SENTENCES[event](EventFields(fields))
    values = EventFields(fields).all()
    return _("{event} {values}", event=event.replace("_", " "), values=values)
