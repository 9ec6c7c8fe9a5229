"""The bounce mailbox: returned mails are read here and stored as feedback events.

port.py defines what a mailbox can do; imap.py, maildir.py and directory.py implement it. reader.py
is the worker in the scheduler role.
"""
