"""What servers write in languages other than English; phrases.py explains the form.

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
        liste de blocage | lista de bloque | lista di blocco | blokkeerlijst
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
        remitente … rechazad | remitente … bloquead | remitente … no | mittente … rifiutat
        mittente … non | remetente … rejeit | remetente … nao | отправител … отклон
        отправител … запрещ | berechtigung | l'autorisation | permiso para | permiso de | permissao
        autorizzazione | разрешени | toestemming | behorighet | 権限 | 权限 | 권한 | uprawnie
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
        mailbox voll | espace … insuffisant | espacio … insuficiente | ha superato lo spazio
        quota … depass | cuota … excedid | quota … superat | cota … excedid | превышен … квот
        превышен … лимит | メールボックス … いっぱい | メールボックス … 一杯 | 容量 … 超え
        容量 … 制限 | 容量 … 超過 | 邮箱已满 | 邮箱 … 满 | 空间不足 | 容量不足 | 超过 … 容量
        переповнен | casuta … plina | γραμματοκιβωτιο … πληρες | kotak … penuh | תיבת … מלאה
        ممتلئ | กล่องจดหมาย … เต็ม | 空間不足 | 信箱已滿 | 메일함 … 초과 | 용량 … 초과 | 용량이 부족
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
        wurde unter … nicht gefunden | verzeichnis nicht aufgefuhrt | kein postfach
        benutzer … nicht im | n'a pas ete trouve | нет такого | несуществующ | несуществует
        tuntematon | ei loydy | boyle bir kullanici yok
        пользователя нет | такого адреса нет | користувач … не існує | адрес … не існує
        скриньк … не існує | utilizator … nu exista | adresa … nu exista | destinatar … nu exista
        korisnik … ne postoji | adresa … ne postoji | χρηστης … δεν υπαρχει
        διευθυνση … δεν υπαρχει | παραληπτης … δεν βρεθηκε | nguoi dung … khong ton tai
        địa chỉ … khong ton tai | pengguna … tidak ditemukan | alamat … tidak ditemukan
        המשתמש … לא קיים | הכתובת … לא נמצאה | المستخدم … غير موجود | العنوان … غير موجود
        ไม่พบผู้ใช้ | ไม่พบผู้รับ
        見つかりません | 見つかりませんでした | 存在しない | 該当 … ありません | 該当 … いません
        該当 … おりません | ユーザー不明 | 宛先 … 不明 | アドレス … 間違 | アドレスが不明
        登録されていません
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
