"""Postroom, an e-mail list service: nothing lost, nothing twice, every recipient accounted for.

The map. A message goes from top to bottom; the first lines of each stage say what it finds, what it
leaves behind, and what happens if it dies half-way.

    0   flow/subscribe.py   people join, confirm and unsubscribe
    0a  flow/confirm.py     mails the link that confirms a subscription
    1   flow/compose.py     a message is written, checked and given a time
    2   flow/schedule.py    finds the messages that are due
    3   flow/fan_out.py     turns the audience into batches of deliveries
    4   flow/send.py        claims a batch and sends its deliveries: the heart
    4a  flow/render.py      turns a message into mails: compiled once, spliced per recipient
    5   flow/feedback.py    acts on what servers and providers report: bounces, complaints
    6   flow/report.py      adds up the books of a message from its ledgers
    7   flow/archive.py     puts away a message once every recipient has an outcome
    ∞   flow/sweep.py       deletes what has expired, and repairs what crashes left behind

Actions that people and programs ask for, outside this path:

    actions/control_message.py   unschedule, pause, resume, cancel or retry a message
    actions/attach_files.py      attach files to a message, and remove them
    actions/manage_lists.py      create, change and delete mailing lists
    actions/ask_to_confirm.py    ask people who have not confirmed to do so
    actions/move_subscriber.py   change an address, or move somebody to another list
    actions/export_people.py     write everyone on a list into a file
    actions/write_body.py        make the HTML from blocks, Markdown or MJML that programs send
    actions/import_page.py       import a page, or a zip with its pictures, as a body
    actions/manage_templates.py  create, change, delete and choose templates and snippets
    actions/manage_media.py      add, describe and delete pictures of the media library
    actions/manage_suppressions.py    add, explain, remove or erase addresses that get no email
    actions/send_test_mail.py    mail a message to one user, to check it
    actions/handle_dead_letters.py    put set-aside work items back, or clear them away
    actions/edit_storage.py      change rows, items and blobs by hand
    actions/change_settings.py   change settings while the service runs
    actions/sign_in.py           users, invitations and sessions of the admin pages

Around them, each using only what is below it:

    cli/                       the command line
    supervisor.py, nursery.py  all roles on one machine, forked from one process
    scaling.py                 how many senders run on this machine, and why
    wiring/                    from settings to running roles; the only package that names
                               engines, transports and mailboxes
    logs.py                    one line per event on standard error
    web/                       admin pages, subscriber pages, the web service
    scheduler.py, sender.py    the two roles; worker.py is the loop around them
    tracing.py, metrics.py     what a role did, as traces in storage and as Prometheus metrics
    bounce_mailbox/            reads bounced mail: a port, IMAP, Maildir, a folder
    importing/                 people from CSV files: upload, job, reading, and the worker
    backup/                    backs everything up into one file while mail is sent, and restores it
    migration/                 copies everything from one storage into another
    act.py                     what a use case works with: storage, time, trace, wake-ups
    sending/                   the parts of a sender: claimed batch, lanes, lease, journal, recovery
    pacing/                    rate limits that all senders share, behind one class
    records/                   maps domain types to rows, the only place that knows keys
    transport/                 how mail is sent: a port, SMTP, three HTTP providers, the outbox
    storage/                   tables, queues and blobs: a port and the engines behind it
    heartbeat.py, process_locks.py    show at once that a role hangs or has died
    feedback/                  interprets reports from servers: bounces, delays, complaints
    writing/                   what people write, as HTML: blocks, MJML, Markdown, styles
    mail/                      what an email is made of: merge fields, headers, MIME, DKIM
    domain/                    pure nouns and decisions; errors.py has the tree of errors
"""
