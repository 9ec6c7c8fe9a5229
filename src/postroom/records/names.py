"""The names of our tables, queues and blob container, as they appear in storage."""

from __future__ import annotations

from postroom.domain.texts import _
from postroom.storage.port import StorageNames

MAIL_QUEUE = "azuremailqueue"  # one item per batch of deliveries
SINGLE_MAIL_QUEUE = "azuremailsubscribequeue"  # confirmations and test mails
IMPORT_QUEUE = "azuremailimportqueue"
FEEDBACK_QUEUE = "azuremailfeedbackqueue"  # one item for some events that wait
DEAD_LETTER_QUEUE = "azuremaildeadletter"
TABLES = (
    "mailinglist",
    "message",
    "messagearchive",
    "service",
    "outbox",
    "feedback",
    "suppression",
    "trace",
    "audit",
)
TABLE_TEXTS = {
    "mailinglist": _("lists and their subscribers"),
    "message": _("messages, and the recipients of those that are being sent"),
    "messagearchive": _("sent messages and their recipients"),
    "service": _("users, sessions, keys, limits, leases and other records of Postroom itself"),
    "outbox": _("emails kept in test mode"),
    "feedback": _("bounces, complaints and other reports"),
    "suppression": _("addresses that get no email"),
    "trace": _("what every role did and what went wrong"),
    "audit": _("who changed what"),
}
QUEUE_TEXTS = {
    MAIL_QUEUE: _("batches of emails to send"),
    SINGLE_MAIL_QUEUE: _("confirmation and test emails to send"),
    IMPORT_QUEUE: _("imports to run"),
    FEEDBACK_QUEUE: _("bounces and complaints to process"),
    DEAD_LETTER_QUEUE: _("dead letters: items that could not be processed"),
}
QUEUES = (MAIL_QUEUE, SINGLE_MAIL_QUEUE, IMPORT_QUEUE, FEEDBACK_QUEUE, DEAD_LETTER_QUEUE)
STORAGE_NAMES = StorageNames(TABLES, QUEUES, container="azuremailblobcontainer")
