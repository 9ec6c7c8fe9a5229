"""Reports without machine-readable fields: bounces that servers write for people."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from postroom.feedback.status_fields import first_address

PARAGRAPHS_MAX = 40
EVIDENCE_CHARS_MAX = 20_000  # servers come to the point
_ADDRESS = r"[^\s<>()\[\],;:@\"']{1,64}@[\w.-]{1,250}"

# Where the returned message begins: a line that announces it, or its first header fields.
_ORIGINAL = re.compile(
    r"(?im)^[^\w\n]{0,12}(?:"
    r"this is a copy of (?:the|your) message|below this line is a copy|enclosed is a copy"
    r"|the header of the original message|original message (?:headers?|follows|text)"
    r"|message headers? follow|original message\W*$|unsent message follows|returned message\W"
    r"|original (?:message|mail)(?: info)?\W*$|included is a copy|below is a copy"
    r"|message text follows|your original message|mensaje original|message d'origine"
    r"|ursprüngliche nachricht|en-têtes de message|intestazioni originali"
    r"|content-type:[ \t]*(?:message/rfc822|text/rfc822-headers)"
    r"|(?:return-path|received|x-received|dkim-signature|arc-seal):"
    r").*$"
)
_NULL_SENDER = re.compile(r"(?im)^return-path:\s*<>")
_BLANK = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")
_RECIPIENTS = (
    re.compile(
        rf"(?im)^[ \t*>\-\"'<(]{{0,12}}({_ADDRESS})[>\"')]{{0,3}}[ \t]*"
        r"(?:[:,;(]|\.\.\.|\bon\b|<mailto|$)"
    ),
    re.compile(rf"(?i)\b(?:to|recipient|address|user|mailbox)\b[ \t:]{{1,3}}[<\"']?({_ADDRESS})"),
    re.compile(rf"({_ADDRESS})"),
)
_NEXT_RECIPIENT = re.compile(rf"<?{_ADDRESS}>?[ \t]*(?::|$)")
_NOT_A_RECIPIENT = re.compile(r"(?i)^(?:postmaster|mailer-daemon|support|abuse|noreply|no-reply)@")

_ADDRESS_OR_CODE = re.compile(rf"(?m)(?<![\w.])5\d\d[ -]|[45]\.\d\.\d|{_ADDRESS}")
_REPLY_BEGIN = re.compile(
    rf"(?=(?<![\w.])[45]\d\d[ -])|(?=(?<![\w.])[45]\.\d\.\d)|{_ADDRESS}[>\"']?\s?[:(,-](?=\s?\S)"
)

_REASON = re.compile(r"(?i)\b(?:because|reason|since|due to|error)\b")
_HEDGE = re.compile(
    r"(?i)\b(?:may|might|maybe|perhaps|possibl[ey]|probably|usually|often|either|or|if|check"
    r"|could be)\b"
)

# Lines of a transcript: what was sent, what was received, what Sendmail concludes from it.
_SENT = re.compile(r"(?i)(?:^|[ \t])(?:>>>|-->)[ \t]*(.{1,300})")
_RECEIVED = re.compile(r"(?im)(?:^|[ \t])(?:<<<|<--)[ \t]*([45]\d\d[ -].{0,500})$")
_ECHO = re.compile(r"(?m)^[ \t]*[45]\d\d[ -][45]\.\d{1,3}\.\d{1,3} \S{1,300}\.\.\. .{0,200}$")

BOUNCE_SENDERS = re.compile(
    r"(?i)mailer[-_. ]?daemon|mail(?:er)? delivery|mail\.delivery|postmaster|mail system"
    r"|microsoftexchange|systemadministrator|majordomo|listserv|mailman|-bounces@|mail gateway"
    r"|content.filter|virus|spam ?filter|mailenable|mail robot|mail router|系统|邮件系统|메일"
    r"|system administrator|mdaemon|mmsc|mail administrator|delivery (?:agent|system)|^<>$"
)
BOUNCE_SUBJECTS = re.compile(
    r"(?i)undeliver|non-?deliver|not (?:be )?deliver|n't (?:be )?deliver|unable to deliver"
    r"|deliver\w* (?:\w+ )?(?:fail|status|report|notif|problem|error|delay|unsuccess)"
    r"|fail\w* (?:to )?(?:deliver|notice|mail)|failure notice|mail (?:failure|error|system error)"
    r"|return(?:ed|ing) (?:mail|message|to sender|email)|error (?:sending|delivering|in delivery)"
    r"|errors from|message (?:delayed|status|you sent blocked)|warning: (?:message|could not)"
    r"|not (?:a )?member|mail not accepted|(?:message|mail) (?:rejected|refused)|mail returned"
    r"|nondelivery"
    r"|postmaster notify|unable to send|couldn't send|message status|rejected:|bounced? |\bndr\b"
    r"|request to (?:the )?mailing list .{0,60}rejected|virus .{0,40}in (?:mail|your)"
    r"|considered unsolicited|blocked by|delivery notification|mail could not|email bounced"
    r"|not delivered|nicht zustellbar|konnte nicht|verzögert|échec|remise|rejeté|nepodařilo"
    r"|nedoručiteln|entrega|no se entregó|devuelto|devolvid|recapit|consegna|niet bezorgd"
    r"|niet afgeleverd|olevererbar|ikke leveret|ikke levert|toimittam|niedostarcz|nie dostarcz"
    r"|kézbesít|teslim|доставк|возвра|エラー|宛先不明|届|返送|退回|未送达|投递|无法送达|退件"
    r"|배달|전송 실패|still being retried"
    r"|unzustellbar|nicht zugestellt|zustellung|non remis|échec de la remise|non recapitabile"
    r"|mancato recapito|no se (?:puede|pudo) entregar|no entregado|não (?:foi )?entreg|onbestelbaar"
    r"|недоставлен|не доставлен|невозможно доставить|配信|送信でき|退信|无法投递|반송"
)
BOUNCE_BODIES = re.compile(
    r"(?i)(?:could|can|was|were|been|is|be)(?: ?not|n't) (?:be )?(?:able to be )?"
    r"(?:deliver|sent|reach)"
    r"|unable to (?:be )?deliver|(?:was|am|were|is)(?: not|n't) able to deliver|undeliverable"
    r"|non-deliverable|did not reach|deliver\w+ (?:\w+ ){0,6}fail|fail\w* (?:\w+ ){0,3}deliver"
    r"|permanent(?: fatal)? error|fatal errors?|address(?:es|\(es\))? failed|recipients? failed"
    r"|delivery status notification|transcript of (?:the )?session|returned (?:message|mail|to you)"
    r"|returning (?:the )?message|error (?:occurred|delivering|sending)|trouble delivering"
    r"|(?:has been|was) (?:rejected|refused)|following (?:address|recipient)"
    r"|delivery (?:error|problem)"
    r"|message was not delivered|has NOT BEEN DELIVERED|mailbox is full|user unknown|unknown user"
    r"|not a member of this|incorrectly constructed|has been delayed|delayed for"
    r"|not yet been delivered"
    r"|undelivered|could not be completed|unable to send|was not delivered|not delivered to"
    r"|not (?:a )?(?:member|subscriber)|delivery (?:to|of|was|is|has)\b|was blocked|virus alert"
    r"|nicht (?:\w+ )?(?:zugestellt|zustellbar|erreicht)|n['’]a pas (?:pu|été)|non remis"
    r"|pas été (?:remis|délivré|distribué)|no se (?:pudo|puede|ha podido|entregó)|no fue entregad"
    r"|não (?:pôde|pode|foi) (?:ser )?entreg|não (?:é|foi) possível entreg"
    r"|non (?:è stato|può essere|recapitat|consegnat)|niet (?:worden )?(?:bezorgd|afgeleverd)"
    r"|kunde inte leverer|kunne ikke lever|kan ikke lever|ei voitu toimit|nelze doru"
    r"|nie (?:można|może|został\w*) .{0,12}dostarcz|nem .{0,12}kézbes|teslim edilem|iletilemedi"
    r"|не (?:был\w* )?доставлен|送信できま|届きま|届けできま"
    r"|退回|退信|(?:无法|未能).{0,6}(?:送达|投递|发送)|(?:投递|发送)失败|(?:전달|배달).{0,6}(?:못|실패)"
    r"|failure reasons|konnte nicht zugestellt|n'a pas pu être|no se ha podido entregar"
    r"|送信できません|配信できません|не может быть доставлено|не удалось доставить"
)
DELAYS = re.compile(
    r"(?i)warning (?:message )?only|not need to re-?send|will (?:be retried|retry|keep trying)"
    r"|still being retried|attempts? will (?:be )?continue|has not yet been delivered"
    r"|temporary failure report|not been delivered yet|delivery incomplete|further attempts"
    r"|hasn't been delivered yet|noch nicht zugestellt|weiterhin versucht|pas encore été remis"
    r"|aún no se ha entregado|todavía no se|non è stato ancora|ainda não foi|ещё не доставлен"
    r"|(?<!not )continue (?:to )?try|being delayed|is delayed for|has been delayed"
    r"|delivery is delayed"
)
COMPLAINT_SUBJECTS = re.compile(
    r"(?i)complaint about message|(?:abuse|spam|junk) (?:report|complaint)|feedback report"
    r"|complaint report|reported as spam|^\[spamcop\b"
)
_FORWARDING = re.compile(r"(?i)\s*(?:fwd?|wg|tr|rv|vb|doorst|i):")
# The header fields of the forwarded mail, in the words of the program that forwarded it.
_FORWARDED_BOUNCE = re.compile(
    r"(?im)^[ \t>*]{0,8}(?:from|von|de|da|van|från|fra|od|от|差出人|发件人)[ \t*]{0,3}[:：]"
    r"[^\n]{0,200}?(?:mailer-daemon|mail delivery s|postmaster)"
)
ANSWERS = re.compile(r"(?i)\s*(?:re|aw|sv|antw|fw|fwd|wg|tr|rv|vs)(?:\[\d+\])?:")
# Sendmail's and others' reports of success that have no fields for machines.
DELIVERIES = re.compile(
    r"(?i)had successful delivery notifications|successfully delivered to"
    r"|\.\.\. successfully delivered|was successfully (?:delivered|relayed)"
    r"|successful mail delivery report"
)
FAILURES = re.compile(
    r"(?i)fatal error|fail|not (?:be )?(?:able|deliver)|reject|refused|\b5\d\d[ -]"
)
DELAY_SUBJECTS = re.compile(
    r"(?i)\bdelay|still being retried|verzöger|retard|will retry|demorad|atrasad|ritard"
    r"|vertraag|задерж|遅延|延迟|지연|försenad|forsink"
)
AUTOMATIC_SUBJECTS = re.compile(
    r"(?i)^\W{0,3}(?:auto(?:matic|mated|-|:|\s)?\s?(?:re(?:ply|sponse|sponder)|antwort|svar)"
    r"|out of (?:the )?office|away from|on vacation|vacation|i am (?:out|away)|i'm out"
    r"|abwesen|automatische antwort|réponse automatique|reponse automatique|absence|absent"
    r"|respuesta automática|fuera de la oficina|risposta automatica|fuori sede|resposta automática"
    r"|automatisch antwoord|afwezig|autosvar|frånvarande|nieobecn|автоответ|自動応答|自动回复|不在)"
)


def forwards_a_bounce(subject: str, text: str) -> bool:
    """Whether a person forwarded a bounce in the text of a mail."""
    return bool(_FORWARDING.match(subject) and _FORWARDED_BOUNCE.search(text[:EVIDENCE_CHARS_MAX]))


def split_original(text: str) -> tuple[str, str]:
    """Split a text into what the server wrote and the message it returned."""
    found = _ORIGINAL.search(text)
    if found is None:
        return text, ""
    if not text[: found.start()].strip():  # the text is the returned message, or begins like it
        return "", text
    return text[: found.start()], text[found.start() :]


def bounced_inside(original: str) -> str:
    """Return the text of a bounce that was itself returned, or nothing."""
    if not _NULL_SENDER.search(original):
        return ""
    return split_original(_BLANK.split(original, maxsplit=1)[-1])[0]


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a text that are not empty, each on one line."""
    for block in _BLANK.split(text[:EVIDENCE_CHARS_MAX].replace("\r", ""))[:PARAGRAPHS_MAX]:
        line = " ".join(block.split())
        if len(line) > 3:
            yield line


def replies(text: str) -> list[str]:
    """The refusals in the transcript of a session, each with the command it answers."""
    found: list[str] = []
    command = ""
    for line in text[:EVIDENCE_CHARS_MAX].splitlines():
        if sent := _SENT.search(line):
            command = sent[1].strip()
        elif received := _RECEIVED.search(line):
            reply = received[1].strip()
            if found and reply[3:4] and found[-1].endswith("-"):  # continued
                found[-1] = f"{found[-1][:-1]} {reply}"
            else:
                found.append(f"{command} <<< {reply}" if command else reply)
            if reply[3:4] == "-":
                found[-1] += "-"
    return [reply.removesuffix("-") for reply in found[:PARAGRAPHS_MAX]]


def quotes_a_server(text: str) -> bool:
    """Whether a text has an address and a reply code, or announces a returned message."""
    return bool(_ADDRESS_OR_CODE.search(text[:EVIDENCE_CHARS_MAX]))


def reply_in(paragraph: str) -> str:
    """The part of a paragraph that a server replied, or that follows the address; may be empty."""
    found = _REPLY_BEGIN.search(paragraph)
    return paragraph[found.end() :] if found and len(paragraph) < 1_500 else ""


def gives_reason(paragraph: str) -> bool:
    """Whether a paragraph says why, and does not merely list what may have happened."""
    return bool(_REASON.search(paragraph)) and not hedges(paragraph)


def hedges(paragraph: str) -> bool:
    """Whether a paragraph only lists what may have happened."""
    return bool(_HEDGE.search(paragraph))


def announced(pieces: list[str]) -> list[str]:
    """The paragraphs that follow one like "The reason was:"."""
    return [
        piece
        for before, piece in pairwise(pieces)
        if before.endswith(":") and gives_reason(before) and not hedges(piece)
    ]


def without_echo(text: str) -> str:
    """Take out what a relay made of a reply that it quotes: "User unknown" for any refusal."""
    return _ECHO.sub("", text) if _RECEIVED.search(text) else text


def lines_about(text: str, recipient: str) -> str:
    """Return the lines of a list of recipients that are about this one."""
    at = text.find(recipient) if recipient else -1
    if at < 0:
        return ""
    lines = text[text.rfind("\n", 0, at) + 1 :][:4_000].splitlines()
    end = 1
    while end < len(lines) and lines[end].strip() and not _NEXT_RECIPIENT.match(lines[end]):
        end += 1
    return " ".join(" ".join(lines[:end]).split())


def recipient_in(text: str, not_this: str) -> str:
    """Return the address that a text seems to be about; not the one the report was sent to."""
    for pattern in _RECIPIENTS:
        for found in pattern.finditer(text[:20_000]):
            address = first_address(found[1])
            if address and address.lower() not in not_this and not _NOT_A_RECIPIENT.match(address):
                return address
    return ""
