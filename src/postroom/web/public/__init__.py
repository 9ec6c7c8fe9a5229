"""Pages for subscribers: confirm, unsubscribe, and the public sign-up form."""
