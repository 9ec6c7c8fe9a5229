"""The storage explorer, for owners: tables, queues and blobs, as they are stored."""

from __future__ import annotations
