"""Wordings that no phrase covers are understood by what they say about whom."""

from __future__ import annotations

import pytest

from postroom.domain.feedback import BounceClass
from postroom.feedback.classify import classify_words
from postroom.feedback.phrases import GROUPS
from postroom.feedback.statements import first_statement
from postroom.feedback.wording import first_match, plain

DEAD = BounceClass.DEAD
TEMPORARY = BounceClass.TEMPORARY
OURS = BounceClass.OURS

REPLIES = {
    DEAD: """
        550 That user is not here
        550 We have no such person
        550 not user of this server
        550 unavailable mail user
        550 We don't have a mailbox for student7
        550 This address is no longer in service
        550 The user you are trying to reach has gone away
        550 Delivery is not possible: this e-mail address is not in use
        550 Rejected: recipient is not in our database
        550 LDAP: no entry for recipient
        550 The email address you entered couldn't be found
        550 Unable to find student7 in the directory
        550 Cannot locate recipient
        550 5.4.4
        550 5.4.4 Domain does not resolve: contoso.edu
        550 cannot find any mail server for the domain
        550 Domain contoso.edu is not hosted here
        553 Requested action not taken: mailbox name not allowed
        5.1.0 - Unknown address error 550-'5.1.1 recipient not listed'
        550 Usuario inexistente
        550 Indirizzo inesistente
        550 Deze gebruiker bestaat niet
        550 Diese E-Mail-Adresse ist nicht bekannt
        550 L'adresse du destinataire n'existe pas
        550 Esta conta de e-mail nao existe
        550 Nieznany uzytkownik
        550 Пользователь с таким адресом не зарегистрирован
        550 用户不存在
        550 Recipient not in routing table
        550 The mailbox of student7 was purged
        550 student7 is not known at this site
        550 This address does not belong to any customer
        550 Aucun utilisateur de ce nom
        550 Ce compte a été supprimé
        550 Не існує: адреса користувача не існує
        550 Korisnik ne postoji
        550 該当するユーザーは存在しません
        """,
    TEMPORARY: """
        550 Sorry, the user has no more quota
        552 User's inbox has reached its limit
        554 Delivery failed: the recipient has too many unread messages, mailbox limit reached
        550 user has exhausted allowed storage space
        552 La boîte de ce destinataire est pleine
        552 La boite de ce destinataire est pleine
        552 El buzón del destinatario está lleno
        552 Das Postfach des Empfaengers ist voll
        552 Почтовый ящик переполнен
        552 对方邮箱已满
        525 5.7.13 Disabled recipient address
        450 4.1.1 x: Recipient address rejected: unverified address: verification in progress
        450 4.1.1 x: Recipient address rejected: User unknown in local recipient table
        451 qq trouble in home directory
        554 5.4.6 too many received headers, possible loop
        550 5.1.1 mailbox full
        550 5.4.4 Temporary DNS failure for contoso.edu
        550 5.4.4 Malformed or unexpected reply
        550 no such key in the user table
        550 the storage volume of this mailbox does not exist
        550 LDAP server unreachable, user not found
        550 mailbox unavailable (busy)
        """,
    OURS: """
        550 IP is rejected
        550 black ip
        554 sender is unvalidated
        553 host denies the sender
        555 helohost error
        554 HL:ITC 163 mx16,QMCowA
        550 Sending host not authorised for sender domain
        550 Email blocked by SPFBL
        421 Too many sessions opened
        450 4.7.1 Client host rejected: too many messages in a time unit
        550 Mail from route 192.0.2.9 is not accepted
        550 Sorry, we don't accept mail from servers in your country
        550 Your email has been automatically rejected. Reason: forged sender
        550 Messages should have one or no Subject headers, not 2
        550 maximum allowed line length is 998 octets, got 4210
        550 the message is bigger than we accept
        550 Worm detected in your attachment
        4.7.4 TLS is required, but was not offered by host mx.contoso.edu
        550 5.1.1 x: Recipient address rejected: mail from your server is blocked
        550 5.1.1 The mailbox is unavailable because the DKIM signature was invalid
        550 5.1.1 no mailbox for mail with this content
        550 Cannot verify sender address: no such user
        550 Headers must contain From, To and Date
        421 You are sending too fast
        421 4.7.66 TLS 1.0 is not supported
        550 A TLS connection is needed
        550 ARC seal invalid
        554 rejected due to virus
        550 Mail size is over 20 MB
        550 Message has no Date header
        550 BDAT not supported
        550 user only accepts internal mail
        550 Your domain has no valid MX record
        550 unknown charset
        535 user not found
        550 Ihre IP-Adresse ist gesperrt
        550 Votre serveur est sur une liste noire
        554 Письмо отклонено: подозрение на спам
        """,
}
LINES = [
    (bounce_class, line.strip())
    for bounce_class, lines in REPLIES.items()
    for line in lines.strip().splitlines()
]


@pytest.mark.parametrize(("bounce_class", "reply"), LINES)
def test_an_unseen_reply_is_classified(bounce_class: BounceClass, reply: str) -> None:
    found = classify_words("", reply)
    assert found.bounce_class is bounce_class, found.reason


def test_statements_alone_tell_the_sender_from_the_recipient() -> None:
    for words, bounce_class in (
        ("this person has left", DEAD),
        ("your address is unknown", OURS),
        ("the sender does not exist", OURS),
        ("recipient unknown to us", DEAD),
        ("no such employee", DEAD),
        ("the storage of this account is used up", TEMPORARY),
    ):
        found = first_statement(plain(words))
        assert found is not None
        assert found.bounce_class is bounce_class, words


def test_a_sentence_says_nothing_about_the_next_one() -> None:
    """The recipients are named in one sentence, what was not found in another."""
    words = "The recipients could not be reached. The host was not found, trying again."
    assert first_match(GROUPS, plain(words)) is None
    assert first_statement(plain(words)) is None


@pytest.mark.parametrize("command", ["MAIL FROM", "RCPT TO", "end of DATA"])
def test_the_name_of_a_command_says_nothing_about_the_sender(command: str) -> None:
    assert first_statement(plain(f"554 no comment (in reply to {command} command)")) is None


def test_the_servers_own_code_counts_more_than_a_relays_translation() -> None:
    assert classify_words("5.1.1", "550 5.7.1 no comment").bounce_class is OURS
    assert classify_words("5.1.1", "550 5.0.0 no comment").bounce_class is DEAD


@pytest.mark.parametrize("words", ["user " * 5_000, "no such " * 5_000, "mailbox not " * 3_000])
def test_no_text_makes_the_search_slow(words: str) -> None:
    assert first_statement(plain(words)) is None or len(words) > 1_000


@pytest.mark.parametrize(
    "reply",
    [
        "550 Unbekannter Fehler beim Empfänger",
        "550 Utilisateur: erreur inconnue",
        "550 Usuario: error desconocido",
        "550 неизвестная ошибка, адресат недоступен",
        "550 L'adresse de l'expéditeur est inconnue",
        "550 La dirección del remitente no existe",
        "550 Die Adresse des Absenders ist unbekannt",
        "550 адрес отправителя не найден",
        "550 IP-адрес неизвестен",
        "550 nieznany adres IP",
        "550 server name not found",
        "550 Attachment name is invalid",
        "550 Wrong name in EHLO",
        "550 HELO name does not exist",
        "550 No MX for sending host",
        "550 The domain of your return address does not exist",
        "550 The account of the sender has been terminated",
        "550 Your account is closed for sending",
        "550 This is not a valid address to send from",
        "550 message has invalid recipient header",
        "550 unable to find the recipient's public key",
        "500 no such command",
        "550 invalid user name or password",
        "550 mailbox closed for maintenance",
        "550 no user certificate presented",
        "550 certificate does not exist",
        "550 IP address not found in DNS",
        "550 the sender address does not exist",
        "553 5.1.3 sender syntax is invalid",
        "550 Reply-To address does not exist",
        "550 envelope from does not exist",
        "550 Message from unknown domain",
        "550 5.7.1 domain not found in allowed sender list",
        "550 no account for relay configured",
        "554 No recipients specified",
        "550 queue does not exist",
        "550 no such selector in DNS",
    ],
)
def test_an_unknown_error_or_sender_is_no_unknown_recipient(reply: str) -> None:
    assert classify_words("", reply).bounce_class is not DEAD
