"""What servers write when they refuse an email: the table of phrases, by what they mean.

The first group with a phrase that occurs decides, so the order matters: what is our fault comes
first, because a server that blocks us may also claim that the user is unknown.

A phrase is lower case and may occur anywhere in the text. "|" separates phrases, "…" stands for up
to 70 characters, "@@" for an email address, "_" for a space that must be there. docs/bounces.md
explains how to add one.
"""

from __future__ import annotations

from postroom.domain.feedback import BounceClass, BounceReason
from postroom.feedback.foreign_phrases import FOREIGN_GROUPS
from postroom.feedback.wording import PhraseGroup, phrase_group

DEAD = BounceClass.DEAD
TEMPORARY = BounceClass.TEMPORARY
OURS = BounceClass.OURS

# cPanel's router of last resort: the domain has neither an MX nor an address, or so it seems.
NO_DNS_ENTRIES = phrase_group(BounceReason.NO_SUCH_HOST, DEAD, "account or domain may not exist")

_STRONG: tuple[PhraseGroup, ...] = (
    NO_DNS_ENTRIES,
    phrase_group(
        BounceReason.AUTHENTICATION,
        OURS,
        """
        dmarc … policy | dmarc … fail | dmarc … reject | not pass dmarc | due to … dmarc
        dmarc verification | dmarc evaluation | dmarc record | spf … fail | spf … not pass
        spf … reject | spf check | spf record | spf validation | spf violation | spf: fail
        spf settings | _per … spf | sender policy framework | dkim … fail | dkim … not pass
        dkim … invalid | dkim signature | dkim validation | either spf or dkim
        unauthenticated email | unauthenticated sender | sender is unauthenticated
        senders to authenticate | fails to pass authentication | required authentication level
        authentication requirements | authentication required | authentication is required
        authentication failed | authentication failure | authentication credentials invalid
        requires authentication | without authentication | smtp authentication | smtp auth
        turn on … authentication | authentication turned on | you don't authenticate
        was not authenticated | not authenticated | authentification requise
        authentification invalide | not passed validation | purported responsible address
        reverse dns | reverse lookup | _rdns | ptr record | ptr-record | dns ptr | ptr resource
        missing ptr | no ptr | ip name lookup failed | cannot find your hostname
        cannot find your reverse hostname | cannot resolve your address
        client host … not resolve | unverifyable sending ip | unverifiable sending ip
        unresolvable relay host | mismatches client ip | does not point to the sending ip
        fix reverse | forward-confirmed | dns lookup failure: … try again later
        verification failure | must issue a starttls | tls required | requires tls
        not support tls | not offer tls | not support starttls | starttls is required
        starttls-not-supported | use tls/ssl | mta-sts validation | tls negotiation
        tls connection … fail | cannot start tls | tls handshake | handshake fail
        tls is required | tls session is required | encryption … required
        requires encryption | encryption needed
        certificate … verif | certificate … trusted | certificate validation | certificate mismatch
        dane … fail | no usable tlsa | client was not authenticated | client not authenticated
        not authorised for sender domain | not a permitted sender | permitted sender
        _arc … fail | require authentication | alignment | not pass email authentication
        dns look-up | certificate-expired | (p=dmarcrejection) | (p=unauthenticatedemail)
        """,
    ),
    phrase_group(
        BounceReason.BUSY,
        OURS,
        """
        too many connection | too many concurrent | too many con | too many recipients
        too many sessions | too many smtp sessions | too many messages from | too many emails
        too many mails | too many errors from your ip | too many invalid recipients
        too much mail from | max emails per hour | max defers and failures per hour
        messages per hour | emails per hour | maximum connection limit | connection limit
        connection rate | connections from your host | concurrent smtp connection
        connexions … trop | trop de connexions | rate limit | rate-limit
        ratelimit | sending rate | throttling failure | throttled | try again slower | slow down
        receiving mail at a rate | receiving mail too quickly | (p=receivingrate
        frequency limit | relay quota | submission rate | too frequently | too fast
        unusual rate of | unusually high | hourly limit | daily message quota exceeded
        daily sending quota | sending limit | sending quota | message rate
        numerous attempts to deliver this message | excessive volume
        too many errors | frequency limited | volume limit | in a time unit | quota for sending
        recipients received this hour | tenant has exceeded | exceeded the limit of recipients
        (p=unsolicitedratelimiterror)
        """,
    ),
    phrase_group(
        BounceReason.BLOCKED,
        OURS,
        """
        blocked using | blocked by … list | blocked by rbl | blocked by … spamhaus
        blocked by … barracuda | blocked by earthlink | is blocked … contact | _ip … blocked
        address … blocked by | blocked - see | blocked. see | blocked for abuse
        blocked for spam | 550 blocked | 554 blocked | has been blocked | mail server … blocked
        network … blocked | temporarily blocked | host … is blocked | server … is blocked
        blocklist | block list | block-list | blacklist | black list | black-list | blackhole
        denylist | deny list | listed at | listed by | listed in … rbl | listed on
        listed as abusive | rbl restriction | rbl on | in an rbl | dnsbl | dnswl
        realtime block | spamhaus | spamcop | _sorbs | abuseat | barracudacentral | uceprotect
        senderscore | sender score | proofpoint … block | reputation | user complaints
        unexpected volume | poor … score | extreme bad ip profile | bad sender ip
        banned sending ip | banned sender | banned ip | access denied, banned
        your ip … rejected | ip address rejected | _ip … refused | sending ip | blocked ip
        access ip | _ip … rejected | _ip … denied | problem occurred. (ask your postmaster
        your network | your ip | ip not in whitelist | not currently accepting mail from your ip
        mail from your ip | spams from your ip | dynamic ip | dynamic/zombied | generic dns
        residential | open relay | openrelay | open proxy | insecure mail relay
        client host rejected
        host network not allowed | helo command rejected | helo/ehlo argument | bad helo
        invalid helo | confirm this mail server | server requires confirmation
        smtp server of your isp | use your isp | not allowed to send mail from
        not allowed to connect | invalid ip for sending | no access from mail server
        access forbidden by your ip | no matches to nameserver query | refused - see
        mail from … refused | refused to talk to me: … blocked | sending spam
        looks suspiciously like spammer | go away
        to submit messages to this e-mail system has been rejected | network is on our
        not accepting connections | service refuse | abus detecte | abuse detected
        connection … dropped by remote | unwanted messages have been sent | customer block list
        rejected by recipient's organization
        weren't sent. please contact your internet service provider | 550 access denied
        554 access denied | [ts0 | [tss0 | (con:b | (rtr: | (hvu: | (dny:
        our block list | is on our list | helo for ip | s3150 | s3140 | bad bounce | country … block
        geo … block | unauthorized interface | unacceptable reputation | sender intelligence
        will not accept delivery | cxbl | cxdns | cxsndr | cxthrt | _sc-00 | _ou-00 | _rp-00
        _dy-00 | connection denied | suspected bounce | permanently deferred | (rly:b | (dyn:t
        _ipbl
        """,
    ),
    phrase_group(
        BounceReason.SPAM,
        OURS,
        """
        spam | unsolicited | dt:spm | mi:spf | system has detected that this message | bulk email
        bulk e-mail | bulk mail | bulk.advertising | mass mailer | ube, id=
        content rejected | content denied | content … rejected | content filter
        content restriction | unacceptable content | mail content | banned content | banned file
        reject, id= | uribl | surbl | blacklisted url | recurrent pattern | phishing
        virus detected | virus found | contains … virus | contain a virus | infected with
        infected | malware | malicious | executable attachment | executable files
        illegal attachment | attachment … not allowed | attachment … not accepted
        content presents a potential | security issue. please visit | mail score
        virus alert | virus: | virus in | viruses … found | scored … points | junk mail | junkmail
        junk e-mail | attachment type | prohibited attachment | suspicious content
        worm | trojan | executable | ransomware
        (p=unsolicitedmessageerror) | (p=blockedmessage)
        """,
    ),
    phrase_group(
        BounceReason.BAD_SENDER,
        OURS,
        """
        sender address … reject | sender rejected | sender was rejected
        sender email address rejected | sender denied | sender refused | sender not allowed
        sender not permitted | sender is not allowed | sender not pre-approved
        sender … not verified | sender verify | sender verification failed
        sender is spammer | sender isn't on | sender unknown | sender domain | dead domain
        sender's domain | sending domain | domain of sender | domain of the sender | from domain
        from: domain | mail from domain | valid from: | valid sender | invalid sender
        unroutable sender | unrouteable sender | bad sender | bogus mail from | null sender
        empty envelope sender | empty email address | envelope sender … rejected
        envelope blocked | fully qualified email address required | mail from not owned
        not owned by user | send mail as | different address or alias | emetteur invalide
        expéditeur invalide | expediteur invalide | batv | backscatter | unsigned dsn
        third-party dsns | bouncedeny | returned mail not accepted | not accept mail from
        senderfilterconfig | email address is not verified | identities failed the check
        not authorized to send | not allowed to send | not permitted to send
        not authorized to perform ses | account not subscribed to ses | not a member of
        not member | non-member | members only | members-only | moderated | not allowed to post
        permission to post | permissions to post | may not have permission | closed mailing list
        list is closed | not subscribed to this group | mx records for | recursive cname
        to/from an address | accepts messages from | only authenticated
        not a subscriber | non-subscriber | not subscribed to | only subscribers | only members
        only registered users | only list members | moderator … reject | rejected by … moderator
        restricted to members | sender restriction | not in allowed | notinallowed
        registered gateway user | google groups | (p=customfromdenied)
        """,
    ),
    phrase_group(
        BounceReason.POLICY,
        OURS,
        """
        relay access denied | relay denied | relay quota | relaying denied | relay not permitted
        relay prohibited | relaying is prohibited | relaying not allowed | relaying mail
        no relaying | not relay | unable to relay | not permitted to relay
        not allowed to relay | configured to relay | relay through | as a relay | not a gateway
        not an open relay | mail relay | invalid credentials for relay | allowed rcpthosts
        list of allowed rcpthost | specified domain is not allowed | don't handle mail for
        not local host | all recipient addresses rejected | recipient addresses rejected
        policy reasons | policy violation | violates | rfc violation | policy restriction
        policy reject | policy denied | denied by policy | local policy | security policies
        security policy | organization policy | organizational settings
        administrative prohibition | administratively denied | administratively prohibited
        prohibited by administrator | delivery not authorized | protocol violation
        message refused | message rejected for | not authorized | is not permitted
        not accepting mail with | messages containing images | without solving a captcha
        banned by policy | blocked by policy | rejected by policy | transport.rules
        administrator … rejected | rule … reject | rejected by … rule | email firewall
        not accepted for policy | aup# | _ib5 | rule imposed
        """,
    ),
    phrase_group(
        BounceReason.BAD_MESSAGE,
        OURS,
        """
        rfc 5322 compliant | not rfc compliant | not compliant | rfc 2822 | duplicate header
        header error | invalid domain name | invalid domain, see | header are not accepted
        multiple … header | multiple addresses | multiple from | missing header | invalid header
        malformed header | 8-bit | invalid mime | mime complexity
        malformed mime | unnecessary base64 | improperly-formatted | bare line feed | bare lf
        bare newline | invalid characters | malformed address | malformed recipient
        malformed message | syntactically | data format error | header size
        command parameter not implemented | command not implemented | syntax error … command
        should have one or no | line length | lone cr | lone lf | bare cr | no valid message-id
        missing … header | invalid message-id | not conform | nonconformant | non-conformant
        message content … invalid | invalid message content | (p=rfcmessagenoncompliant)
        """,
    ),
    phrase_group(
        BounceReason.MAILBOX_FULL,
        TEMPORARY,
        """
        mailbox size limit | mailbox size exceed | mailbox … size limit
        """,
    ),
    phrase_group(
        BounceReason.TOO_LARGE,
        TEMPORARY,
        """
        too large for this recipient | recipsizelimit
        """,
    ),
    phrase_group(
        BounceReason.TOO_LARGE,
        OURS,
        """
        message too large | message too big | message is too large | message is too big
        message file too big | mail too large | message size exceed | message exceeds
        message … size limit | message size … limit | maximum message size
        maximum incoming message size | maximum inbound message size | max message size
        message length exceeds | exceeds size limit | exceeds maximum size | exceeds the maximum
        line limit exceeded | line too long | lines longer than | taille limite | too big for
        message is too long | too long to | attachment is too l | oversized message
        google's message size | (p=maxsizeerror)
        """,
    ),
    phrase_group(
        BounceReason.MAILBOX_FULL,
        TEMPORARY,
        """
        mailbox … full | mailbox … over quota | mailbox … exceed | mailbox … quota
        mailbox … too large | mailbox … size limit | mailfolder … full | mail box … full
        inbox … full | inbox is out of storage | out of storage | full mailbox | account is full
        user is full | folder is full | over quota | overquota | over … quota | quota … exceed
        exceed … quota | exceeded … storage | exceeded storage | exceeds … quota
        quota violation | quota full | quota limit | out of quota | disk quota | maildir … quota
        diskspace quota | not enough … space | enough … storage | storage … full | storage limit
        storage quota | space has been used up | shutoffquotaexceeded | too much mail data
        too many messages on the server | too many messages in | exceeding receiving limits
        mailbox limit | too many unread | maximum capacity | over capacity | no space left for
        allowed capacity | disk quota exceeded | quota … reached | allotted space
        maximum allowed storage | disk full | boite … pleine | boîte … pleine | bôite … pleine
        postfach … voll | mailbox … voll | speicherplatz | casella … piena | buzón … lleno
        buzon … lleno | caixa … cheia | переполнен | 容量超過 | 容量オーバー | (p=overquota
        """,
    ),
    phrase_group(
        BounceReason.FILTERED,
        TEMPORARY,
        """
        account is protected by | blocked by the recipient | recipient preferences | user rules
        user refuses | user reject | rejected by recipients | sieve | rejected by the recipient
        recipient refuses | refuse to receive | refuses to receive | refuses to accept your
        only accepting mail from | only accepts mail from | not accepting any mail
        not accepting mail from you | restricted sms | message filtered | message was filtered
        bounced address | on hold | recipient error | suppression list | suppressed
        previously been | challenge
        """,
    ),
    phrase_group(
        BounceReason.SUSPENDED,
        TEMPORARY,
        """
        account … disabled | account … suspended | account … inactive | account … locked
        account … blocked | account … frozen | account … deactivated | account … expired
        account … limited | suspended recipient | compte … suspendu | mailbox … disabled
        mailbox … suspended | mailbox … inactive | mailbox … frozen | mailbox … locked
        mailbox … deactivated | mailbox currently | deactivated mailbox | user … disabled
        user … suspended | user … locked | user … inactive | user … deactivated
        user is terminated | user not active | user or domain is disabled
        recipient … suspended | recipient … disabled | recipient … inactive | recipient suspend
        recipient rejected: temporarily | archived recipient | destinataire archiv
        compte … bloque | inactive account | inactive user | inactive mailbox | disabled mailbox
        disabled user | disabled account | disabled or discontinued | has been suspended
        is currently suspended | temporary locked | temporarily locked | receiving disabled
        (p=disableduser) | (p=inactiveuser)
        """,
    ),
    phrase_group(
        BounceReason.BLOCKED,
        OURS,
        """
        blocked
        """,
    ),
    phrase_group(
        BounceReason.MOVED,
        DEAD,
        """
        has moved | mailbox … moved | recipient no longer on | has been replaced by
        user has moved | address has changed | address … changed to | new address is
        no longer works here | not our user
        """,
    ),
    phrase_group(
        BounceReason.NETWORK,
        TEMPORARY,
        """
        host not found, try again | name lookup failure | lookup failure | lookup fail
        dns … try again | dns server failure | dns query failed | name server … fail
        name server reply | name service error … try again | could not resolve
        no route to host | network is unreachable | network unreachable | host is unreachable
        host not reachable | unable to resolve route | unrouteable mail domain
        mail forwarding loop | forwarding loop | routing loop | mail loop | message looping
        loops back to myself | too many hops | too many received | loop was found | in a loop
        dns server returned
        hop count | 50 hops | could not connect | unable to connect | cannot connect
        not accept our requests to connect | socket error | dns records for the destination
        """,
    ),
    phrase_group(
        BounceReason.NO_MAIL_ACCEPTED,
        DEAD,
        """
        no smtp service | does not receive mail | receives no mail
        nullmx | null mx | not accept mail ( | host does not accept mail
        domain does not accept mail | domain … does not accept email
        does not accept incoming mail | name server: .: host not found | no mx record found
        """,
    ),
    phrase_group(
        BounceReason.NO_SUCH_HOST,
        DEAD,
        """
        host unknown | unknown host | host or domain name not found | host not found
        domain not found | domain name not found | domain does not exist
        domain … does not exist | domain doesn't exist | domain doesnt exist
        nonexistent domain | non-existent domain | domain no longer | domain couldn't be found
        domain is not reachable | domain must exist | domain may not exist | no such domain
        no such host | no mail servers … exist | unknown domain | bad domain
        name or service not known | mentioned in email address is unknown | unrouteable address
        unroutable address | nxdomain | couldn't find any host | couldn't find a mail exchanger
        no mx found | neither mx | no mx or a | no mx record for
        mx records point to non-existent | not hosted here | domain … not hosted
        unknown destination domain | no such destination | dns … nxdomain | lookup … no such host
        domain is invalid | domain is unknown
        domain unknown | illegal host/domain | no relevant answers
        """,
    ),
    phrase_group(
        BounceReason.NO_SUCH_USER,
        DEAD,
        """
        user unknown | userunknown | unknown user | user … unknown | user not found
        user … not found | user not known | user not exist | user … not exist
        user … doesn't exist | user doesn't have | user name of email address not valid
        user not listed | user invalid | invalid user | invalid or unknown | unknown or illegal
        unknown recipient | unknown mailbox | unknown address | unknown account | unknown local
        unknown e-mail | unknown email | unknown virtual | unknown alias | recipient unknown
        recipient not found | recipient … not found | recipient does not exist
        recipient not exist | recipient doesn't exist | recipient … not exist
        recipient is not exist | recipient name is not recognized | recipient not recognized
        recipient invalid | recipient is invalid | recipient not ok | recipient is not local
        recipient is not accepted | recipient address rejected: access denied
        recipient address rejected. (in reply | recipnotfound | recipientnotfound
        recipient notfound | invalid recipient | invalid-recipient | invalid mailbox
        invalid address | invalid email | invalid final delivery | bad recipient
        bad destination mailbox | bad mailbox | bad address | bad-mailbox | address unknown
        address invalid | address is invalid | address not present | address not found
        5.1.0 address rejected | #5.1.0 address rejected | address could not be found
        address does not exist | address doesn't exist | address no longer
        address is no longer | address is wrong | email name is not found | addressee unknown
        account … not exist | account … doesn't exist | account not found | account … not found
        account unavailable | account unknown | account is unknown | user is unknown
        mailbox not found | mailbox … not found | mailbox unknown | mailbox does not exist
        mailbox … not exist | mailbox doesn't exist | mailbox not exist | mailbox not present
        mailbox invalid | mailbox unavailable | mailbox is unavailable | mailbox unavaiable
        no such user | no such mailbox
        no such recipient | no such address | no such account | no such local | no such person
        no such alias | no mailbox | no mail box | no account | no user | no one at this address
        no valid recipients for | no valid recipients, bye | destination recipient
        no recipients for | no longer valid | no longer exist | no longer active
        no longer a user | doesnt exist | unknown subscriber | subscriber unknown
        address … not be found | address … n't be found | recipient … n't be found
        user … n't be found | n't found at | recipient … not be found | mailbox … not be found
        user … not be found | user … no longer | mailbox … no longer | account … no longer
        wrong recipient | not our customer | no recipient | rcp-p1 | nicht im … verzeichnis
        inactive email address | not a valid mailbox | not a valid recipient | not a valid user
        not a valid email | not a known user | not a local address | not known here
        not an active address | not listed in | not in directory | in name directory
        in public name | non existent | nonexistent | non-existent
        does not exist at the organization | to reach does not exist | @@ does not exist
        @@ not found | t exist | can't accept user | addresses were unknown
        destination server rejected recipients | badrcptto | badrecipientto | validrcptto
        recipient has been denied | missing home directory
        nobody here | no one here | cxmxrt | mailbox name not allowed | user has left
        is not a member of our | that user is not here | no such | account has been closed
        account … deleted | mailbox … deleted | mailbox was deleted | user … deleted
        recipient … deleted | account is closed | left the company | left the organi
        address is not recognized | destinataire inconnu
        destinataire … invalide | adresse … invalide | utilisateur inconnu
        utilisateur … inconnu | adresse … introuvable | unbekannter empfänger
        empfänger unbekannt | benutzer unbekannt | adresse … unbekannt
        empfänger … existiert nicht | postfach … existiert nicht | nessun utente
        utente sconosciuto | destinatario sconosciuto | destinatario … non valido | no existe
        usuario desconocido | usuario … no encontrado | destinatario desconocido
        usuário … não existe | não existe | usuário desconhecido | gebruiker onbekend
        nie ma takiego | нет такого пользователя | не существует | не найден
        存在しません | 宛先不明 | (p=nosuchuser)
        """,
    ),
    phrase_group(
        BounceReason.EXPIRED,
        TEMPORARY,
        """
        timed out | timeout | time out | expired | in the queue too long | held too long | too old
        in queue too long | queued too long
        retry time not reached | retry timeout | failing for a long time | long failure period
        multiple retries | could not be delivered for | could not deliver for
        not be delivered for more than | within the allowed queue period | allowed queue
        not been collected | server did not respond | not respond | gateway for
        tried for | has been delayed | will be deleted from queue
        """,
    ),
    phrase_group(
        BounceReason.NETWORK,
        TEMPORARY,
        """
        connection refused | connection reset | connection lost | lost connection
        connection closed | connection dropped | connection failed | connection died
        connection … failed | dns error
        """,
    ),
    phrase_group(
        BounceReason.BUSY,
        TEMPORARY,
        """
        greylist | graylist | grey list | gray list | grey-list | try again later | try later
        try again in | retry later | later retry | busy | temporarily deferred
        verification in progress | come back later | come back in | please retry | all server ports
        temporarily rejected | temporarily unavailable
        """,
    ),
    phrase_group(
        BounceReason.SYSTEM,
        TEMPORARY,
        """
        internal system error | internal error | internal server error | system error
        server error | system config error | configuration error | misconfigured | local problem
        local error | temporary failure | temporary error | temporary problem
        queue file write error | service currently unavailable | can't create user output file
        could not load | interrupted system call | encountered an error while | there is no mdb
        insufficient disk | insufficient system | insufficient permission | no space left
        system full | disk space | system resources | not accepting network messages
        unknown mailer error | mailer error | command died | command failed | command output
        maildir delivery failed | create maildir | cannot open file | cannot access mailbox
        cannot update mailbox | error writing message | cannot append | unable to chdir
        unable to open | trouble in home directory | local delivery failed | lookup error
        pipe to | procmail | maildrop | loop broken
        """,
    ),
)
# What servers say for lack of better words.
_WEAK: tuple[PhraseGroup, ...] = (
    phrase_group(
        BounceReason.POLICY,
        OURS,
        """
        access denied | address rejected | permission denied | not allowed | low priority
        mail rejected | message rejected | email rejected | e-mail rejected | mail rejete
        message was rejected | message has been rejected | mail refused | email refused
        message not accepted | mail not accepted | email not accepted | connection rejected
        forbidden | prohibited
        """,
        is_weak=True,
    ),
    phrase_group(
        BounceReason.SYSTEM,
        TEMPORARY,
        """
        service unavailable | service not available | transaction failed
        """,
        is_weak=True,
    ),
    phrase_group(BounceReason.TOO_LARGE, OURS, "size limit", is_weak=True),
)

GROUPS = (*_STRONG, *FOREIGN_GROUPS, *_WEAK)
