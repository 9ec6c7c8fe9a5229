"""Write the same bytes again and again over plain sockets: as fast as the sink takes them.

`python -m postroom_bench.raw_sender PORT MAILS MAIL_BYTES CONNECTIONS SECONDS_MAX` prints how many
mails went and how many seconds it took, as JSON. It is measured, not used.
"""

from __future__ import annotations

import itertools
import json
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor


def main(port: int, mails: int, mail_bytes: int, connections: int, seconds_max: float) -> None:
    content = b"Message-ID: <1@contoso.edu>\r\n\r\n".ljust(mail_bytes, b"x")
    numbers = itertools.count()
    started = time.monotonic()

    def send_some() -> int:
        sent = 0
        with socket.create_connection(("127.0.0.1", port)) as line, line.makefile("rb") as replies:
            replies.readline()
            line.sendall(b"HELO bench\r\n")
            replies.readline()
            while (number := next(numbers)) < mails and time.monotonic() - started < seconds_max:
                line.sendall(
                    b"RSET\r\nMAIL FROM:<a@contoso.edu>\r\nRCPT TO:<student%d@contoso.edu>\r\n"
                    b"BDAT %d LAST\r\n" % (number, mail_bytes)
                )
                line.sendall(content)
                for _ in range(4):
                    replies.readline()
                sent += 1
        return sent

    with ThreadPoolExecutor(connections) as pool:
        sent = sum(pool.map(lambda _: send_some(), range(connections)))
    taken = {"mails": sent, "seconds": time.monotonic() - started}
    sys.stdout.write(json.dumps(taken) + "\n")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]), int(given[1]), int(given[2]), int(given[3]), float(given[4]))
