"""Recognizes a refusal by what it says, and about whom, where no phrase covers the wording.

"Our records show that this person has left" has no fixed phrase, but it has a word for somebody who
receives mail and a word for leaving. What is said about the sender counts first: no address is
called dead by a sentence that is about us.

Why not phrases alone: every server puts the same few statements into words of its own.
"""

from __future__ import annotations

import re

import msgspec

from postroom.domain.feedback import BounceClass, BounceReason

DEAD = BounceClass.DEAD
TEMPORARY = BounceClass.TEMPORARY
OURS = BounceClass.OURS

TEXT_CHARS_MAX = 1_500  # of one reply; a longer text is not a reply


class Statement(msgspec.Struct, frozen=True):
    """What a sentence says, and the pattern of such sentences."""

    reason: BounceReason
    bounce_class: BounceClass
    pattern: re.Pattern[str]


# What a relay adds to a reply: it names a command, but says nothing about anybody.
_COMMAND = re.compile(r"\(?in reply to [a-z ]{1,40} command\)?")


def first_statement(text: str) -> Statement | None:
    """Return the first kind of statement that occurs in a plain text (wording.py)."""
    return _first(STATEMENTS, _COMMAND.sub("", text[:TEXT_CHARS_MAX]))


def foreign_statement(text: str) -> Statement | None:
    """Return the first kind of statement in a language other than English."""
    return _first(FOREIGN_STATEMENTS, text[:TEXT_CHARS_MAX])


def contradiction(text: str) -> Statement | None:
    """Return what contradicts that an address is dead."""
    return _first(CONTRADICTIONS, _COMMAND.sub("", text[:TEXT_CHARS_MAX]))


def _first(kinds: tuple[Statement, ...], text: str) -> Statement | None:
    return next((kind for kind in kinds if kind.pattern.search(text)), None)


# --- Who ----------------------------------------------------------------------------------------

_SENDER = (
    r"(?:senders?|mail[ -]?from|from[ :-]{1,2}(?:address|header|field|domain|line)|envelope"
    r"|(?:return|reverse)[ -]path|helo\w*|ehlo|ips?|ip[ -]address(?:es)?|rdns|ptr|spf|dkim|dmarc"
    r"|client|sending (?:\w+ )?(?:host|server|ip|mta|domain|system|address|network)"
    r"|your (?:ip|server|host|domain|network|isp|provider|mail ?server|mta|system|address"
    r"|e-?mail address|organi[sz]ation|country|software))"
)
_PEER = r"(?:connections?|network|remote host|hosts?|server|country|source|origin|domain|relay)"
_RECIPIENT = (
    r"(?<!your )(?<!sender )(?<!from )(?<!ip )(?<!ip-)"
    r"(?:e-?mail |local |mail )?"
    r"(?:addresse?e?|account|user(?:name| name|id| id)?|recipient|mail ?box|inbox|alias|person"
    r"|customer|subscriber|employee|student|maildrop|destination"
    r"|(?<!file )(?<!host )(?<!server )(?<!domain )(?<!helo )(?<!ehlo )(?<!attachment )name"
    r"(?! (?:in|server|service)\b))(?:'s|s|\(s\)|\(es\))?"
)
_OUR_SIDE = (
    r"(?:helo|ehlo|(?:return|reverse)[ -](?:path|address)|from (?:address|header|field|domain)"
    r"|sending (?:account|address|domain|host|server|system))"
)
# What may be missing or unknown without saying anything about a recipient.
_PART_OF_A_MESSAGE = (
    r"(?:commands?|options?|encoding|charset|certificate|rule|selector|attachment|mechanism"
    r"|recipient count)"
)
_PART_OF_A_SERVER = r"(?:file|directory|process|device|table|key|queue|volume|database)"
_CONTENT = (
    r"(?:content|attachments?|subject|body|headers?|urls?|links?|files?|macros?|words?|language"
    r"|character ?set|characters?|encoding|scripts?|message|mail|e-?mail)"
)
_STORE = (
    r"(?:mail ?box|inbox|account|user|recipient|mail ?folder|folder|maildir|storage|disk|box|store)"
    r"(?:'s|s)?"
)

# --- What ---------------------------------------------------------------------------------------

_NOT = r"(?:\bnot|n't|\bcannot)"
_DENIED = (
    rf"(?:reject|refus|\bden(?:y|ied|ies)|block|\bban|{_NOT} (?:\w+ )?(?:allow|accept|permit"
    r"|authori|trust|welcome|listed as)|unauthori[sz]|untrust|prohibit|forbid|disallow|restrict"
    r"|blackl|\bblack |\babus|hijack|compromis|\bonly (?:accept|auth|regist|known|local|internal))"
)
_FAULTY = (
    rf"(?:{_NOT} (?:\w+ ){{0,2}}(?:valid|verif|known|recogni|resolv|match|exist|found|regist"
    r"|permitted|want|designat|equal|qualif)|invalid|fake|forg|spoof|suspicious|suspect"
    r"|\bbad\b|missing|fail|illegal|unknown|unvalid|unverif|unwanted|must|requires?\b|mismatch"
    r"|\bpoor|\blow\b|hang ?up|score|listed|limit|exceed|too (?:many|much|often|fast)|error"
    r"|\bno (?:valid )?(?:mx|ptr|spf)\b)"
)
_ABSENT = (
    rf"(?:{_NOT} (?:\w+ ){{0,2}}?(?:found|known|exist|recogni[sz]ed|registered|listed|here|in use"
    r"|in service|valid|defined|present|identified|located|local|hosted|with us|at this|on this"
    r"|in (?:our|the|this)|in (?:\w+ )?(?:list|directory|database|table)|on (?:our|the|this) list"
    r"|resolve|a member|ours|belong|be verified)|\b(?:unknown|inexist|non-?exist"
    r"|no longer|no more here|deleted|purged|erased|closed|cancel+ed|terminated|discontinued"
    r"|removed|(?:has|have|had) left|left (?:the|our)|departed|gone\b|retired"
    r"|wrong|incorrect|misspel|mistyped|undefined|obsolete|invalid|illegal|bogus"
    r"|unrecogni[sz]ed|unresolvable))"
)
_NO_SUCH = (
    r"(?:\b(?:no such|unknown|invalid|non-?existent|nonexisting|undefined|unregistered|wrong"
    r"|unrecogni[sz]ed|incorrect|bad|illegal|deleted|not an?(?: \w+){0,2}|not one of our|have no"
    r"|is(?:n't| not) an?(?: \w+){0,2}|unable to find (?:an?|the|any)|has no"
    r"|no entry for|there is no|no(?! valid| recip)|not(?= user| recip| mailbox| our)|unavailable)"
    rf"|{_NOT} (?:find|know|have|locate|identify)(?: an?| the| any| this| that| such| your)?)"
)
_FULL = (
    r"(?:\bfull\b|exceed|exhaust|over (?:its |the |his |their )?(?:\w+ )?(?:quota|limit|capacity"
    r"|size)|used up|maximum (?:size|capacity|allowed|storage|number)|limit (?:is |was )?reached"
    r"|reached (?:its|the|their) (?:\w+ )?(?:limit|max|capacity|quota)|too (?:full|many)"
    r"|no (?:more |free )?(?:space|room)|not (?:have )?enough|too large|oversize)"
)
_IDLE = (
    r"(?:suspend|disabled|inactiv|deactivat|locked|frozen|dormant|on hold|restricted|hang ?up"
    r"|not (?:yet )?(?:active|activated|enabled)|expired|hibernat|unavailable)"
)

# --- In other languages -------------------------------------------------------------------------

_RECIPIENT_ABROAD = (
    r"(?:adresse?n?|e-?mail-?adres\w*|empf(?:a|ae)nger\w*|benutzer\w*|postf(?:a|ae)ch\w*|konto"
    r"|utilisateur|destinataire|compte|boite|usuario|destinatario|cuenta|buzon|direccion|utente"
    r"|indirizzo|casella|conta|caixa|endereco|gebruiker|ontvanger|postvak|mottagare\w*|anvandare\w*"
    r"|brevlada\w*|bruger\w*|modtager\w*|bruker\w*|mottaker\w*|uzytkownik|adresat|odbiorc\w*"
    r"|skrzynk\w*|adres|uzivatel\w*|prijemc\w*|schrank\w*|felhasznalo|cimzett|cim|postafiok"
    r"|kullanici|alici|пользовател\w*|получател\w*|адресат\w*|адрес\w*|ящик\w*)"
)
_ABSENT_ABROAD = (
    r"(?:(?:nicht|niet|ikke|inte) (?:\w+ ){0,2}?(?:gefunden|vorhanden|bekannt|gevonden|hitta|funnet"
    r"|fundet)|existiert\w* nicht|gibt es nicht|unbekannt|ungultig|n'exist\w* pas|introuvable"
    r"|inconnu|ine[sx]ist|no exist|no (?:se |fue |ha sido )?(?:pudo |puede )?encontr|desconocid"
    r"|non (?:e |e stat[oa] )?(?:esist|trovat|valid)|sconosciut|nao (?:foi |pode ser )?(?:exist"
    r"|encontrad|localizad)|desconhecid|bestaat niet|onbekend|finns inte|okan[dt]|findes ikke"
    r"|finnes ikke|ukendt|ukjent|nie (?:zostal\w* )?(?:istnieje|znalezion)|nieznan|neexist|neznam"
    r"|nem (?:letez|talalh)|ismeretlen|bulunama|gecersiz|не (?:был\w* )?(?:найден|существует"
    r"|зарегистрирован)|неизвест|отсутствует)"
)
_FULL_ABROAD = (
    r"(?:\bvoll\b|uberfullt|uberschritten|plein|satur|depass|\bllen|excedid|\bpien[oa]|esaurit"
    r"|superat|\bchei|lotad|ultrapassad|\bvol\b|\bfull\b|\bfuld\b|peln[aey]|przepeln|przekroczon"
    r"|\bpln[aey]|prekrocen|megtelt|dolu|asildi|переполнен|заполнен|превышен)"
)
_SENDER_ABROAD = (
    r"(?:(?:des |ihres )?(?:absender|servers)|(?:de )?l'expediteur|(?:del )?(?:remitente|mittente)"
    r"|remetente|afzender|avsandare|afsender|avsender|nadawcy|odesilatele|отправител)"
)
_ADDRESS_ABROAD = r"(?:adresse?n?|adresa?|direccion|indirizzo|endereco|адрес\w*)"


def _near(first: str, second: str, *, chars_max: int = 40) -> str:
    """One after the other, in any order, in one sentence."""
    gap = rf"(?:(?!\. )[^;]){{0,{chars_max}}}?"
    return rf"\b{first}\b{gap}{second}|{second}\w*{gap}\b{first}\b"


def _statement(reason: BounceReason, bounce_class: BounceClass, *patterns: str) -> Statement:
    return Statement(reason, bounce_class, re.compile("|".join(patterns)))


FOREIGN_STATEMENTS: tuple[Statement, ...] = (
    _statement(
        BounceReason.MAILBOX_FULL,
        TEMPORARY,
        _near(_RECIPIENT_ABROAD, _FULL_ABROAD),
    ),
    _statement(
        BounceReason.NO_SUCH_USER,
        DEAD,
        _near(_RECIPIENT_ABROAD, _ABSENT_ABROAD),
        r"\b(?:compte|konto|postfach|benutzer|cuenta|conta|casella|skrzynk\w*|ящик\w*)\b[^;.]{0,20}"
        r"(?:supprim|geloscht|eliminad|cancellat|usuniet|удален)",
        r"\b(?:kein|aucun|ningun|nessun|nenhum|geen|ingen|zaden) (?:\w+ )?(?:empfanger"
        r"|benutzer|postfach|konto|utilisateur|destinataire|compte|usuario|destinatario|buzon"
        r"|utente|gebruiker|ontvanger|anvandare|mottagare|bruger|modtager|uzivatel)\b",
    ),
)
STATEMENTS: tuple[Statement, ...] = (
    _statement(
        BounceReason.BLOCKED,
        OURS,
        r"\b(?:rbl|dnsbl|dul|blo?ck ?list\w*|dynamic|[sxpc]bl|black ?list\w*|cloudmark|firewall)\b",
        r"\b(?:dt|mi|hl|rp):[a-z]{3}\b",  # NetEase (163.com, 126.com)
        _near(_SENDER, _DENIED),
        _near(_PEER, _DENIED, chars_max=20),
        r"\b(?:mail|message|e-?mail)s? from (?:you|this|that|your|\S*\d{1,3}(?:\.\d{1,3}){3})",
        r"\bdo(?:es)?(?: not|n't) (?:want|like|wish) (?:to \w+ )?(?:e?-?mails?|messages?)? ?from",
    ),
    _statement(
        BounceReason.AUTHENTICATION,
        OURS,
        r"\b(?:starttls|tls|ssl)\b|\bauthenticat",
        r"\barc\b[^;.]{0,20}?\b(?:invalid|fail|broken)",
    ),
    _statement(
        BounceReason.BAD_SENDER,
        OURS,
        _near(_SENDER, _FAULTY),
        r"\bfrom (?:the )?(?:outside|external|internet)\b",
        r"\b(?:external|outside) (?:senders?|e?-?mails?|users?|sources?|addresses)\b",
        r"\binternal (?:senders?|e?-?mails?|use|users)\b",
    ),
    _statement(
        BounceReason.SPAM,
        OURS,
        r"\b(?:virus|malware|worm|trojan|phish)",
        r"\bscored?\b|\b(?:mass|bulk)[ -]mail|\badvertis|\bcommercial",
        r"\b(?:urls?|links?)\b[^;.]{0,30}?\blisted\b",
    ),
    _statement(
        BounceReason.BUSY,
        OURS,
        r"\btoo (?:many|much|often|fast|frequent)\b.{0,40}\b(?:e?mails?|messages?|connect|rcpt"
        r"|recipients|sessions?|commands|errors|requests)",
        r"\b(?:sending|outgoing|outbound|hourly|daily|rate|frequency|volume)\b.{0,30}"
        r"\b(?:limit|exceed|quota|control|throttl|too)",
        r"\brate limit|\b(?:hourly|daily)\b|\bper (?:second|minute|hour|day)\b|\bin a time unit\b"
        r"|\bslow(?:er)? down\b",
    ),
    _statement(
        BounceReason.TOO_LARGE,
        OURS,
        r"\b(?:message|mail|e-?mail|attachment|size|body)\b[^;.]{0,30}?\b(?:too (?:large|big)"
        r"|larger than|bigger than|exceed|over (?:the|our) (?:\w+ )?limit)",
        r"\b(?:message|mail|e-?mail|attachment)(?: size)? (?:is |was )?(?:over|above) \d",
    ),
    _statement(
        BounceReason.MAILBOX_FULL,
        TEMPORARY,
        rf"\b{_STORE}\b[^;.]{{0,40}}?{_FULL}",
        r"\b(?:no|insufficient|out of|not enough|lack of) (?:\w+ ){0,2}(?:space|storage|room)\b",
        r"\bquota\b",
    ),
    _statement(BounceReason.SUSPENDED, TEMPORARY, rf"\b{_RECIPIENT}[^;.]{{0,40}}?{_IDLE}"),
    _statement(
        BounceReason.NO_SUCH_HOST,
        DEAD,
        rf"\b(?:domain|destination host)\b[^;.]{{0,30}}?{_ABSENT}",
        r"\b(?:invalid|non-?existent) (?:host|domain)\b(?! ?name)",
        rf"(?:\bno|{_NOT} find (?:an?|any)) (?:mx|mail (?:server|exchanger|host)|such domain)\b",
    ),
    _statement(
        BounceReason.NO_SUCH_USER,
        DEAD,
        rf"\b{_RECIPIENT}[^;.]{{0,40}}?{_ABSENT}",
        r"\b(?:find|locate|look ?up)\b[^;.]{0,40}?\bin (?:the|our|this) (?:\w+ )?(?:directory"
        r"|database|system|list)\b",
        rf"{_NO_SUCH}[ \"'(<\[]{{1,3}}(?:\w+ )?{_RECIPIENT}",
        r"\b(?:nobody|no ?one) (?:here|by|with|at|of)\b|\b(?:by|of|with) that (?:name|address)\b",
        r"\bnot known (?:at|to|on|in|by) (?:this|our|the) (?:site|system|server|host|domain)\b",
        r"\b(?:user|recipient|person|account|address|mailbox)\b[^;.]{0,20}(?:is not|isn't) here\b",
        rf"@@[^;.\w]{{0,5}}(?:is |was )?{_ABSENT}",
    ),
    _statement(
        BounceReason.POLICY,
        OURS,
        _near(_CONTENT, _DENIED),
        rf"\b{_CONTENT}\b[^;.]{{0,40}}?(?:{_NOT} (?:\w+ )?(?:conform|compl|pass|valid)|unaccept"
        r"|inappro|suspicious|quarantin|malformed|invalid|too long)",
        r"\b(?:filter(?:ed)?|polic(?:y|ies)|rules?|scanner|acl|dlp)\b",
        r"\b(?:message|header)s?\b[^;.]{0,20}?\b(?:lack|must|should|missing|without|contain)",
        r"\bheaders?\b[^;.]{0,20}?\bfail|\bno (?:valid )?[\w-]{1,20} headers?\b",
        r"\b(?:message|mail|body) has no\b|\bempty (?:message|mail|body)\b",
        r"\b(?:bdat|chunking|8bitmime|binarymime|smtputf8|mime|charset|encoding|non-ascii)\b",
        r"\bby (?:the |our |its )?(?:\w+ )?(?:gateway|administrator)\b",
    ),
)

# Words that rule out calling an address dead, whatever else is said: a mailbox that is "unavailable
# due to an invalid signature" exists.
CONTRADICTIONS: tuple[Statement, ...] = (
    _statement(
        BounceReason.BAD_SENDER,
        OURS,
        _near(
            r"(?<!to )(?<!to the )(?:senders?|mail from)",
            r"(?:verif|reject|\bden(?:y|ied)|call(?:back|out)|forged|syntax)",
            chars_max=20,
        ),
        r"\byour (?:ip|server|host|domain|network|mail ?server|mta)\b|\bnot like sender\b",
        _near(_OUR_SIDE, r"(?:\bnot?\b|n't|unknown|invalid|wrong|illegal)", chars_max=25),
        r"\b(?:(?:sender(?:'s)?|reply-to|bounce|ip)[ -](?:e-?mail )?(?:address|domain|account)"
        r"|envelope[ -]from)\b[^.;:]{0,25}"
        r"(?:\bnot?\b|n't|unknown|invalid|wrong|illegal)",
        r"\b(?:message|mail)s? from (?:an? )?(?:unknown|invalid|non-?exist)",
        r"\b(?:allowed|permitted) senders?\b|\b(?:for|to) relay(?:ing)?\b",
        r"\b(?:address|account) of the sender\b|\bfor sending\b|\bto send from\b",
        rf"\b{_ADDRESS_ABROAD}\b[^.;]{{0,12}}\b(?:{_SENDER_ABROAD}|ip\b)",
        r"\bip[ -](?:adresse|адрес)",
    ),
    _statement(
        BounceReason.SYSTEM,
        TEMPORARY,
        rf"\bno (?:such (?:\w+ )?|\w+ ){_PART_OF_A_SERVER}\b|\bunable to exec",
        rf"\b{_PART_OF_A_SERVER}(?: (?:of|for) \w+(?: \w+)?)?(?: (?:is|was|does))? ?"
        rf"(?:{_NOT} (?:be )?(?:exist|found)|non-?exist)",
        r"\b(?:ldap|database|sql|directory|backend|dns|name) ?(?:servers?|service|connection)?"
        r" (?:is |are )?(?:unreachable|unavailable|down|not respond|not available|offline)",
    ),
    _statement(
        BounceReason.BAD_MESSAGE,
        OURS,
        r"\b(?:bad|illegal|invalid|malformed|missing)\b[^.;]{0,30}\bheaders?\b",
        rf"\b(?:no|unknown|invalid|missing)(?: such)? (?:\w+ )?{_PART_OF_A_MESSAGE}\b"
        rf"|\b{_PART_OF_A_MESSAGE}(?: (?:is|was|does|are))? ?{_ABSENT}",
        r"\bno recipients? (?:specified|given|named)\b|\brecipient count\b|\burl (?:domain|host)\b",
    ),
    _statement(
        BounceReason.AUTHENTICATION,
        OURS,
        r"\b(?:credentials|password)\b|\b(?:public|encryption) key\b",
    ),
    _statement(
        BounceReason.POLICY,
        OURS,
        r"\bspam|\bdmarc|\bdkim|\bspf\b|reputation|\bpolic(?:y|ies)\b|blo?ck ?list|black ?list"
        r"|\bblocked\b|\bdnsbl|\brbl\b|authenticat|\bvirus|malware|phish|unsolicited|complaints"
        r"|\bcontent\b|\bscore\b|\bbanned\b",
    ),
    _statement(
        BounceReason.MAILBOX_FULL, TEMPORARY, r"\bquota\b|\bover ?quota|(?:mailbox|is) full\b"
    ),
    _statement(
        BounceReason.BUSY,
        TEMPORARY,
        r"gr[ea]y[ -]?list|rate[ -]?limit|throttl|temporar|\btoo many\b|try (?:again )?later"
        r"|\bmaintenance\b|\bbusy\b|\b(?:will retry|retry (?:later|in))\b",
    ),
)
