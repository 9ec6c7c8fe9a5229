"""A provider's category of a failure and the server's words become one classification.

A category that names its cause is *firm*: the words may only refine its reason. A category that
says no more than "hard" or "soft" is used only if the words say nothing: providers also call
addresses dead that were refused because of our own reputation.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from postroom.domain.feedback import BounceClass, BounceReason, Classification
from postroom.feedback.webhooks.values import line
from postroom.feedback.webhooks.values import status as status_code

Classify = Callable[[str, str], Classification]  # by enhanced status and the server's words

_UNINFORMATIVE = {BounceReason.UNKNOWN, BounceReason.NOT_FEEDBACK}


class ProviderCategory(msgspec.Struct, frozen=True):
    """What a provider's own name for a failure means."""

    bounce_class: BounceClass
    reason: BounceReason = BounceReason.UNKNOWN
    is_firm: bool = True


def settle(
    category: ProviderCategory, status: str, words: str, classify: Classify
) -> Classification:
    """Classify a failure by the provider's category and the server's response."""
    status = status_code(status)
    words = line(words)
    if status or words:
        found = classify(status, words)
        agrees = found.bounce_class is category.bounce_class or not category.is_firm
        if agrees and found.reason not in _UNINFORMATIVE:
            return Classification(found.bounce_class, found.reason, found.status or status, words)
    return Classification(category.bounce_class, category.reason, status, words)


def dead(reason: BounceReason = BounceReason.UNKNOWN, firm: bool = True) -> ProviderCategory:
    return ProviderCategory(BounceClass.DEAD, reason, firm)


def temporary(reason: BounceReason = BounceReason.UNKNOWN, firm: bool = True) -> ProviderCategory:
    return ProviderCategory(BounceClass.TEMPORARY, reason, firm)


def ours(reason: BounceReason = BounceReason.UNKNOWN, firm: bool = True) -> ProviderCategory:
    return ProviderCategory(BounceClass.OURS, reason, firm)


COMPLAINT = ProviderCategory(BounceClass.COMPLAINT, BounceReason.COMPLAINT)


def complaint(words: str) -> Classification:
    """The classification of a complaint; the words are the provider's, not a server's."""
    return Classification(COMPLAINT.bounce_class, COMPLAINT.reason, "", line(words))
