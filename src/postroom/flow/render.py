"""Stage 4a of 7, render: a message as mails, compiled once and spliced per recipient.

Before: send.py has loaded a batch.   After: its lane has the bytes of each mail.
Dies half-way: nothing is kept but a cache; the Message-ID is the same on every attempt.
Commit point: none; rendering writes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
import structlog

from postroom.clock import Clock
from postroom.domain.address import Address, parse_mailbox
from postroom.domain.delivery import Delivery
from postroom.domain.delivery_token import delivery_tokens, single_mail_token
from postroom.domain.errors import BadInput
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import SUBJECT_CHARS_MAX, Message
from postroom.domain.subscriber import Subscriber
from postroom.domain.texts import _
from postroom.domain.token import sign
from postroom.mail.attachments import EncodedAttachments, encode_attachments
from postroom.mail.finishing import MessageFields, finished_bodies
from postroom.mail.mime import (
    CompiledMail,
    MailParts,
    compile_mail,
    format_date,
    message_id_end,
    unsubscribe_headers,
)
from postroom.mail.rendition import SplicedMail
from postroom.parsing import in_thread
from postroom.records import attachments, bodies, lists, subscribers
from postroom.storage.port import Storage

log = structlog.get_logger("render")
T = TypeVar("T")
MESSAGES_CACHED_MAX = 8  # compiled messages that are going out, up to 4 MiB each
ATTACHED_BYTES_CACHED_MAX = 48 * 1024**2  # of their attachments, encoded: at least three messages
SENDERS_CACHED_MAX = 256  # compiled confirmations, a few KB each
TRIAL_MARK = "[Test] "
NOBODYS_GUID = "test"  # no subscriber has it, so its unsubscribe link changes nothing
FEEDBACK_SENDER = "postroom"  # stable for life (Gmail's feedback loop)


@dataclass(frozen=True)
class Site:
    """Where this installation is, for the links and identifiers in mails."""

    url: str  # public base URL, without a slash at the end
    secret: str
    bounce_domain: str = ""  # where bounces go, each to its own address; "": to the From

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or "localhost"

    def unsubscribe_url(self, list_name: str, guid: str) -> str:
        return f"{self.url}/u/{list_name}/{guid}"  # the GUID comes last: mails_for adds it

    def confirm_url(self, list_name: str, guid: str) -> str:
        token = sign(self.secret, "confirm", list_name, guid)
        return f"{self.url}/c/{list_name}/{guid}/{token}"

    def view_url(self, ref: str) -> str:
        """The page that shows a message to anybody who has the link."""
        return self.url + self.view_path(ref)

    def view_path(self, ref: str) -> str:
        return f"/v/{ref}/{sign(self.secret, 'view', ref)}"

    def envelope_sender(self, token: str, sender: Address) -> str:
        """Where bounces go: each email has its own address, which identifies it (VERP)."""
        return f"b+{token}@{self.bounce_domain}" if self.bounce_domain else sender.typed


class SharedParts(msgspec.Struct, frozen=True):
    """What the mails of a slice have in common."""

    compiled: CompiledMail
    sender: Address
    site: Site
    date: str
    id_end: str  # of the Message-ID

    @classmethod
    def of(cls, compiled: CompiledMail, sender: Address, site: Site, clock: Clock) -> SharedParts:
        return cls(compiled, sender, site, format_date(clock.now()), message_id_end(sender.domain))


class RenderedMail(msgspec.Struct, frozen=True, gc=False):
    """One mail; it is encoded when the lane knows what the server accepts."""

    position: int
    token: str
    address: Address
    values: dict[str, str]
    unsubscribe_url: str | None
    shared: SharedParts

    @property
    def compiled(self) -> CompiledMail:
        return self.shared.compiled

    @property
    def sender(self) -> str:
        return self.shared.site.envelope_sender(self.token, self.shared.sender)

    @property
    def message_id(self) -> str:
        return f"<{self.token}{self.shared.id_end}"

    @property
    def recipient(self) -> str:
        return self.address.typed

    @property
    def merge_values(self) -> Mapping[str, str]:
        unsubscribe_url = self.unsubscribe_url or ""
        values = {**self.values, "email": self.recipient, "unsubscribe_url": unsubscribe_url}
        return self.compiled.regions.with_values(values)

    @property
    def own_headers(self) -> list[tuple[str, str]]:
        unsubscribe = unsubscribe_headers(self.unsubscribe_url) if self.unsubscribe_url else []
        return [("Message-ID", self.message_id), *unsubscribe]

    def spliced(self, *, eight_bit: bool) -> SplicedMail:
        shared = self.shared
        return shared.compiled.splice(
            self.address,
            self.values,
            message_id=self.message_id,
            date=shared.date,
            unsubscribe_url=self.unsubscribe_url,
            eight_bit=eight_bit,
        )


@dataclass(frozen=True)
class CompiledMessage:
    message: Message
    compiled: CompiledMail
    sender: Address
    site: Site
    clock: Clock

    def mails_for(self, batch: int, deliveries: Sequence[Delivery]) -> list[RenderedMail]:
        """The mails of a slice; what they have in common is computed once."""
        site = self.site
        positions = [delivery.position for delivery in deliveries]
        tokens = delivery_tokens(site.secret.encode(), self.message.ref, batch, positions)
        shared = SharedParts.of(self.compiled, self.sender, site, self.clock)
        unsubscribe_url = site.unsubscribe_url(self.message.list_name, "")
        return [
            RenderedMail(
                delivery.position,
                tokens[delivery.position],
                Address(delivery.address, delivery.key),  # parsed when its owner joined
                delivery.attributes,
                unsubscribe_url + delivery.guid,
                shared,
            )
            for delivery in deliveries
        ]


class Renderer:
    def __init__(self, storage: Storage, site: Site, clock: Clock) -> None:
        self._storage = storage
        self.site = site
        self._clock = clock
        self._cache: OrderedDict[str, CompiledMessage] = OrderedDict()
        self._confirmations: OrderedDict[str, tuple[CompiledMail, Address]] = OrderedDict()
        self._compiling = asyncio.Lock()

    async def compiled(self, message: Message) -> CompiledMessage:
        """The message ready to be spliced; bodies cannot change once it is going out.

        It is compiled once, although all lanes ask for it when sending begins.
        """
        known = self._cache.get(message.ref)
        if known is None:
            async with self._compiling:
                known = self._cache.get(message.ref) or await self._compile(message)
        _remember(self._cache, message.ref, known, MESSAGES_CACHED_MAX)
        _forget_attachments(self._cache)
        return known

    async def _compile(self, message: Message) -> CompiledMessage:
        mailing_list = await lists.find(self._storage.tables, message.list_name)
        html, text = await bodies.load(self._storage.blobs, message)

        def compile_bodies(attached: EncodedAttachments | None) -> CompiledMail:
            parts = message_parts(message, mailing_list, html, text, self.site)
            return compile_mail(msgspec.structs.replace(parts, attachments=attached))

        try:
            attached = await self._encode_attachments(message) if message.attachments else None
            compiled = await in_thread(compile_bodies, attached)  # 2 MB may take seconds
        except ValueError as error:  # it was checked when it was written, so it has changed since
            raise BadInput(
                _("Message {ref} cannot be compiled: {why}", ref=message.ref, why=error)
            ) from error
        for region in compiled.regions.each:
            region.note_left_out = partial(_note_left_out, message.ref)
        sender = compiled.parts.sender.address
        return CompiledMessage(message, compiled, sender, self.site, self._clock)

    async def _encode_attachments(self, message: Message) -> EncodedAttachments:
        """In a thread, because encoding ten megabytes takes a tenth of a second."""
        files = [
            (
                each.name,
                each.media_type,
                await attachments.load(self._storage.blobs, message.ref, each),
            )
            for each in message.attachments
        ]
        return await in_thread(encode_attachments, files)

    def confirmations(
        self, mailing_list: MailingList, people: Sequence[Subscriber]
    ) -> list[RenderedMail]:
        """The confirmation emails; ValueError if the list's From is not valid in an email."""
        site = self.site
        secret = site.secret.encode()
        compiled, sender = self._compiled_confirmation(mailing_list.sender)
        title = mailing_list.description or mailing_list.name
        shared = SharedParts.of(compiled, sender, site, self._clock)
        return [
            RenderedMail(
                position,
                single_mail_token(secret, one.guid),
                Address(one.address, one.key),
                {
                    "list": title,
                    "confirm_url": site.confirm_url(mailing_list.name, one.guid),
                    "site": site.host,
                },
                None,
                shared,
            )
            for position, one in enumerate(people)
        ]

    def _compiled_confirmation(self, sender: str) -> tuple[CompiledMail, Address]:
        """The confirmation of a sender: lists with the same From differ only in merge values."""
        known = self._confirmations.get(sender)
        if known is None:
            html, text = _confirmation_bodies()
            parts = MailParts(
                sender=parse_mailbox(sender),
                subject=str(_("Confirm your subscription to {list}", list="{{ list }}")),
                html=html,
                text=text,
                precedence_bulk=False,
                auto_submitted=True,
            )
            known = compile_mail(parts), parts.sender.address
        _remember(self._confirmations, sender, known, SENDERS_CACHED_MAX)
        return known

    async def trial(self, message: Message, address: Address, nonce: str) -> RenderedMail:
        """The message as a test email, whose unsubscribe link changes nothing.

        Somebody on the list gets it with their own attributes. It does not come from the cache,
        because the bodies of a draft change.
        """
        subject = message.subject
        if len(subject) + len(TRIAL_MARK) <= SUBJECT_CHARS_MAX:
            subject = TRIAL_MARK + subject
        compiled = await self._compile(msgspec.structs.replace(message, subject=subject))
        key = address.storage_key
        member = await subscribers.find(self._storage.tables, message.list_name, key)
        attributes = member.value.attributes if member else {}
        delivery = Delivery(0, key, address.typed, NOBODYS_GUID, attributes)
        [mail] = compiled.mails_for(0, [delivery])
        digest = hashlib.sha256(f"{message.ref}-{nonce}-{key}".encode()).hexdigest()
        token = single_mail_token(self.site.secret.encode(), digest[:32])
        return msgspec.structs.replace(mail, token=token)


def _remember(cache: OrderedDict[str, T], key: str, value: T, size_max: int) -> None:
    """Make this the most recently used entry, and evict the least recently used one."""
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > size_max:
        cache.popitem(last=False)


def _forget_attachments(cache: OrderedDict[str, CompiledMessage]) -> None:
    """Forget the least recently used messages until the attachments of all others fit."""
    while (
        len(cache) > 1
        and sum(len(each.compiled.tail) for each in cache.values()) > ATTACHED_BYTES_CACHED_MAX
    ):
        cache.popitem(last=False)


def message_parts(
    message: Message,
    mailing_list: MailingList | None,
    html: str | None,
    text: str | None,
    site: Site,
) -> MailParts:
    """Everything about a message that is the same in all its mails."""
    name = mailing_list.description if mailing_list else ""
    postal = mailing_list.postal_address if mailing_list else ""
    own = MessageFields(
        list_title=name or message.list_name,
        postal_address=postal,
        view_url=site.view_url(message.ref),
        site_url=site.url,
    )
    html, text = finished_bodies(html, text, own, message.preview_text)
    return MailParts(
        sender=parse_mailbox(message.sender),
        subject=message.subject,
        html=html,
        text=text,
        list_id=(name or message.list_name, f"{message.list_name.lower()}.{site.host}"),
        feedback_id=f"{message.ref}:{message.list_name}:list:{FEEDBACK_SENDER}",
    )


def _confirmation_bodies() -> tuple[str, str]:
    """HTML and text; values are merge fields, so that braces in them are left alone."""
    link = "{{ confirm_url }}"
    request = _("Somebody asked to subscribe this address to {list}.", list="{{ list }}")
    ignore = _("If it was not you, ignore this email. You won’t get any others.")
    origin = _("Requested on {site}.", site="{{ site }}")
    text = f"{request}\n{_('To confirm, open this link:')}\n\n{link}\n\n{ignore}\n\n{origin}\n"
    html = f"""\
<!doctype html><html lang="en">
<body style="font-family:sans-serif;max-width:32rem;margin:2rem auto">
<p>{request}</p>
<p><a href="{link}" style="display:inline-block;padding:.8rem 1.4rem;\
background:#1f7a5c;color:#fff;border-radius:.4rem;text-decoration:none">{_("Confirm")}</a></p>
<p>{_("Or open this link:")} <a href="{link}" style="word-break:break-all">{link}</a></p>
<p>{ignore}</p>
<p style="color:#667">{origin}</p></body></html>
"""
    return html, text


def _note_left_out(ref: str) -> None:
    """Log it once per condition and sender, without naming any recipient."""
    log.warning("condition_left_out", ref=ref)
