"""What servers write in other languages than English; phrases.py explains the form.

Accents do not matter: "boîte" and "boite" are one phrase. What is our fault comes first.
"""

from __future__ import annotations

from postroom.domain.feedback import BounceClass, BounceReason
from postroom.feedback.wording import PhraseGroup, phrase_group

DEAD = BounceClass.DEAD
TEMPORARY = BounceClass.TEMPORARY
OURS = BounceClass.OURS

FOREIGN_GROUPS: tuple[PhraseGroup, ...] = (
    phrase_group(
        BounceReason.BLOCKED,
        OURS,
        """
        ip … gesperrt | ip … blockiert | ip … abgelehnt | ip-adresse | adresse ip
        server … gesperrt | liste noire | sperrliste | lista negra | lista nera | schwarze liste
        чёрном списке | чёрный список | чёрного списка | заблокирован … ip | ip … заблокирован
        ブラックリスト | 接続 … 拒否 | 黑名单 | 블랙리스트 | blocco ip | direccion ip | indirizzo ip
        发信ip | ip地址
        """,
    ),
    phrase_group(
        BounceReason.SPAM,
        OURS,
        """
        pourriel | indesirable | unerwunscht | correo no deseado | posta indesiderata | спам
        迷惑メール | 垃圾邮件 | 스팸 | контент … отклон | contenuto non ammesso
        conteudo … recusado | ungewollte | 反垃圾
        """,
    ),
    phrase_group(
        BounceReason.BAD_SENDER,
        OURS,
        """
        absender … abgelehnt | absender … gesperrt | absender … unbekannt | absender … ungultig
        absender … nicht | expediteur … refuse | expediteur … rejete | expediteur … non
        remitente … rechazad | remitente … no | mittente … rifiutat | mittente … non
        remetente … rejeit | remetente … nao | отправител … отклон | отправител … запрещ
        berechtigung | l'autorisation | permiso para | permiso de | permissao | autorizzazione
        разрешени | toestemming | behorighet | 権限 | 权限 | 권한 | uprawnie
        afzender … geweigerd | avsandare … nekad | 送信者 … 拒否 | 发件人 … 拒绝
        """,
    ),
    phrase_group(
        BounceReason.POLICY,
        OURS,
        """
        richtlinie | richtlinien | politique de securite | politica de seguridad
        rechazado por la politica | filtre … bloqu | bloqueado por … filtro
        nicht berechtigt | keine berechtigung | n'etes pas autorise | no tiene permiso
        nachricht … abgelehnt | nachricht … verweigert | message … refuse par
        message rejete | mensaje … rechazado por | mensaje … bloqueado | messaggio rifiutato
        сообщение отклонено | письмо отклонено | 受信拒否 | 邮件被拒绝 | wiadomosc odrzucona
        """,
    ),
    phrase_group(
        BounceReason.TOO_LARGE,
        OURS,
        """
        nachricht … zu gross | nachricht … zu groß | message … trop volumineux | trop grand
        mensaje … demasiado grande | messaggio … troppo grande | слишком большой
        サイズ … 超 | 邮件 … 过大 | bericht … te groot
        """,
    ),
    phrase_group(
        BounceReason.MAILBOX_FULL,
        TEMPORARY,
        """
        postfach … uberfullt | postfach … erschopft | postfach … gross | postfach … groß
        postfach ist voll | mailbox voll | mailbox … uberschritten | kontingent … uberschritten
        boite … saturee | boite … plein | boite … depasse | quota … depasse | espace … insuffisant
        buzon … llen | buzon … excedid | cuota … excedid | cuenta … llena | espacio … insuficiente
        casella … esaurit | casella … piena | ha superato lo spazio | quota … superat
        caixa … cheia | caixa … lotada | cota … excedid | cota … ultrapassad
        postvak … vol | mailbox … vol | brevlada … full | inkorg … full | postlada … full
        postkasse … full | postkasse … fuld | skrzynka … pelna | skrzynka … przepelniona
        schranka … pln | postaflada … megtelt | posta kutusu … dolu | kota … asil
        ящик … переполнен | ящик … заполнен | превышен … квот | квота … превышен
        превышен … лимит | メールボックス … いっぱい | メールボックス … 一杯 | 容量 … 超え
        容量 … 制限 | 容量 … 超過 | 邮箱已满 | 邮箱 … 满 | 空间不足 | 容量不足 | 超过 … 容量
        空間不足 | 信箱已滿 | 메일함 … 초과 | 용량 … 초과 | 용량이 부족
        """,
    ),
    phrase_group(
        BounceReason.SUSPENDED,
        TEMPORARY,
        """
        postfach … deaktiviert | konto … gesperrt | konto … deaktiviert | compte … desactive
        cuenta … deshabilitad | cuenta … suspendid | cuenta … bloquead | account … disattivat
        casella … disattivat | casella … disabilitat | conta … desativad | conta … suspens
        ящик … заблокирован | ящик … отключен | пользователь … заблокирован | 停用 | 禁用 | 冻结
        休止 | 利用停止 | 사용중지 | 휴면
        """,
    ),
    phrase_group(
        BounceReason.NO_SUCH_HOST,
        DEAD,
        """
        domain … nicht gefunden | domain … existiert nicht | domain … nicht vorhanden
        domaine … introuvable | domaine … n'existe pas | domaine inconnu
        dominio … no encontrado | dominio … no existe | dominio inesistente
        dominio … non esiste | dominio … nao existe | домен … не найден | домен … не существует
        ドメイン … 見つかりません | ドメイン … 存在しません | 域名 … 不存在 | 域名 … 错误
        """,
    ),
    phrase_group(
        BounceReason.NO_SUCH_USER,
        DEAD,
        """
        empfanger … nicht gefunden | empfanger … nicht bekannt | empfanger … nicht vorhanden
        empfanger … ungultig | empfanger … nicht erkannt | empfanger … unbekannt
        empfangeradresse … existiert nicht | empfaenger … unbekannt | empfaenger … nicht
        adresse … nicht gefunden | adresse … nicht bekannt | adresse … existiert nicht
        adresse … nicht vorhanden | adresse … ungultig | benutzer … existiert nicht
        benutzer … nicht gefunden | benutzer … nicht bekannt | benutzer … nicht vorhanden
        benutzer … unbekannt | benutzer … nicht im | konto … existiert nicht
        konto … nicht vorhanden | konto … nicht gefunden | postfach … nicht vorhanden
        postfach … nicht gefunden | unbekannte adresse | unbekannter benutzer
        wurde unter … nicht gefunden | verzeichnis nicht aufgefuhrt | kein postfach
        utilisateur … n'existe pas | utilisateur … introuvable | utilisateur inexistant
        adresse … n'existe pas | adresse … inconnue | adresse … inexistante | compte … n'existe pas
        compte inconnu | compte … introuvable | destinataire … inconnu | destinataire … introuvable
        destinataire … n'existe pas | destinataire … invalide | boite … n'existe pas
        boite aux lettres inconnue | n'a pas ete trouve
        usuario … no existe | usuario inexistente | usuario … desconocid | usuario no valido
        destinatario … no existe | destinatario … desconocid | destinatario inexistente
        destinatario … no encontrad | destinatario … inesistente | destinatario … sconosciut
        destinatario … non esiste | destinatario … non trovat | cuenta … no existe
        cuenta inexistente | cuenta … no encontrad | buzon … no existe | direccion … no existe
        direccion … no encontrad | direccion … no valida | direccion desconocida
        no se encontro la direccion | no se ha encontrado la direccion | no se encontro el
        utente non esistente | utente inesistente | utente … sconosciut | utente … non esiste
        utente … non trovat | indirizzo inesistente | indirizzo … non esiste | indirizzo … errato
        indirizzo … non trovat | indirizzo … sconosciut | casella … inesistente
        casella … non esiste | account … non esiste
        usuario … nao existe | usuario … nao encontrad | conta … nao existe | conta inexistente
        destinatario … nao existe | destinatario … nao encontrad | endereco … nao existe
        endereco … nao encontrad | endereco inexistente | caixa postal … nao existe
        gebruiker … niet | gebruiker onbekend | onbekende gebruiker | onbekende ontvanger
        ontvanger … onbekend | adres … niet gevonden | adres … bestaat niet | mailbox … bestaat niet
        okand mottagare | okand anvandare | mottagaren … finns inte | anvandaren … finns inte
        adressen … finns inte | adressen … hittades inte | ukjent bruker | ukjent mottaker
        ukendt bruger | ukendt modtager | findes ikke | finnes ikke | ei loydy | tuntematon
        nieznany … zytkownik | nieznany adresat | nieznany odbiorca | nie istnieje | nie znaleziono
        uzivatel … neexist | adresa … neexist | neznamy uzivatel | neznamy prijemce
        neexistuje | ismeretlen cimzett | ismeretlen felhasznalo | nem letezik | nem talalhato
        kullanici bulunamadi | boyle bir kullanici yok | gecersiz alici | alici bulunamadi
        пользователь … не найден | пользователь … не существует | неизвестный пользователь
        нет такого | адрес … не существует | адрес … не найден | ящик … не существует
        ящик … не найден | получатель … не найден | получатель … не существует
        адресат … не найден | несуществующ | несуществует
        見つかりません | 見つかりませんでした | 存在しない | 該当 … ありません | ユーザー不明
        宛先 … 不明 | アドレス … 間違 | アドレスが不明 | 登録されていません
        不存在 | 收件人 … 错误 | 用户未找到 | 无此用户 | 没有此用户 | 没有该用户 | 查无此人
        未开通 | 地址错误 | 존재하지 않 | 없는 사용자 | 없는 계정 | 찾을 수 없 | 잘못된 주소
        """,
    ),
    phrase_group(
        BounceReason.EXPIRED,
        TEMPORARY,
        """
        zeituberschreitung | zeitlimit | delai … depasse | tiempo … agotado | tempo scaduto
        tempo … esgotado | timeout | タイムアウト | 超时 | 시간 초과 | превышено время
        antwortet nicht | ne repond pas | no responde | non risponde | nao responde | не отвечает
        応答がありません
        """,
    ),
    phrase_group(
        BounceReason.BUSY,
        TEMPORARY,
        """
        spater erneut | spater noch einmal | plus tard | mas tarde | piu tardi | mais tarde
        попробуйте позже | повторите попытку позже | 稍后 | しばらく | 나중에
        """,
    ),
)
