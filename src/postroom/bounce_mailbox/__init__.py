"""The bounce mailbox: mails that come back are read here and stored as feedback events.

port.py is what a mailbox can do; imap.py, maildir.py and directory.py do it. reader.py is the
worker in the scheduler role.
"""
