"""Mail as most scripts do: build an EmailMessage for each recipient, send it, then the next.

`python -m postroom_bench.naive_sender PORT MAILS MAIL_BYTES SECONDS_MAX [CA_FILE]` prints how many
mails went and how many seconds it took, as JSON. It is measured, not used.
"""

from __future__ import annotations

import json
import smtplib
import ssl
import sys
import time
from email.message import EmailMessage

from postroom_bench.installation import PARAGRAPH, paragraphs

FRAME_BYTES = 600  # of such a mail without paragraphs
SENDER = "donotreply@contoso.edu"


def main(port: int, mails: int, mail_bytes: int, seconds_max: float, ca_file: str = "") -> None:
    count = paragraphs(mail_bytes - FRAME_BYTES)
    started = time.monotonic()
    sent = 0
    with smtplib.SMTP("127.0.0.1", port) as server:
        if ca_file:
            server.starttls(context=ssl.create_default_context(cafile=ca_file))
        while sent < mails and time.monotonic() - started < seconds_max:
            server.send_message(_mail(f"student{sent}@contoso.edu", count))
            sent += 1
    taken = {"mails": sent, "seconds": time.monotonic() - started}
    sys.stdout.write(json.dumps(taken) + "\n")


def _mail(address: str, count: int) -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"] = "New lecture series"
    mail["From"] = SENDER
    mail["To"] = address
    mail.set_content(f"News for {address}\n\n" + "Lecture series and more.\n\n" * count)
    html = f"<html><body><h1>News for {address}</h1>\n{PARAGRAPH * count}</body></html>"
    mail.add_alternative(html, subtype="html")
    return mail


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), *sys.argv[5:])
