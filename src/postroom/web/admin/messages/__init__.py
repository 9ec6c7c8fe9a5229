"""Admin pages for messages: write, check, schedule, follow and control."""
