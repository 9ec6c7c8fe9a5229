"""The names of our tables, queues and blob container, as they appear in storage."""

from __future__ import annotations

from postroom.storage.port import StorageNames

MAIL_QUEUE = "azuremailqueue"  # one item a batch of deliveries
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
)
QUEUES = (MAIL_QUEUE, SINGLE_MAIL_QUEUE, IMPORT_QUEUE, FEEDBACK_QUEUE, DEAD_LETTER_QUEUE)
STORAGE_NAMES = StorageNames(TABLES, QUEUES, container="azuremailblobcontainer")
