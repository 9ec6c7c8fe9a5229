"""Postroom, an e-mail list service: nothing lost, nothing twice, every recipient accounted for.

The map of the path. A message goes from the top to the bottom; each stage says in its first lines
what it finds, what it leaves, and what happens if it dies half-way.

    0   flow/subscribe.py   people join, confirm and leave
        flow/confirm.py     mails the link by which somebody says yes
        flow/ask.py         asks people who have not confirmed to do so
        flow/take_out.py    everyone of a list into a file
    1   flow/compose.py     a message is written, checked and given a time
        flow/test_mail.py   mails a message to whoever wrote it, to be looked at
    2   flow/schedule.py    finds the messages that are due
    3   flow/fan_out.py     turns the audience into batches of deliveries
    4   flow/send.py        takes a batch and gets its deliveries out: the heart
    4a  flow/render.py      a message as mails, compiled once, spliced per recipient
    6   flow/archive.py     puts away a message whose every recipient's fate is known
    7   flow/report.py      the books of a message, added up from its ledgers
    ∞   flow/sweep.py       what time brings, and what accidents left lying about
        flow/move.py        somebody's address changes, or they go over to another list
        flow/migrate.py     copies everything from one storage into another
        flow/keep_lists.py  makes, changes and deletes mailing lists
        flow/sign_in.py     who may work on the admin pages
        flow/steer.py       what people may do to a message on its way: pause, resume, cancel, retry

Around the path:

    domain/     pure nouns and decisions; delivery.py has the ledger and what every outcome means
    mail/       what a mail is: templates, headers, MIME
    importing/  people from CSV files: upload, job, reading, and the worker that runs it
    records/    our nouns as rows
    storage/    tables, queues and blobs: a port and the engines behind it
    transport/  ways out: a port, SMTP, the outbox
    web/        admin pages, subscriber pages, the web service
    scheduler.py, sender.py    the two roles; worker.py is the loop around them
    journal.py  what a sender handed over, known even after kill -9
    heartbeat.py, process_locks.py    how a role that hangs or has died is known at once
    wiring.py, engines.py    the only modules that name a transport or an engine
    roles.py, supervisor.py, cli/    one role, all roles, the command line
"""
