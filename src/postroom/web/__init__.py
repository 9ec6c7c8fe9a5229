"""The web role: subscriber pages and the web service. Pages only call flow."""
