"""Whether receivers will trust emails from a domain: SPF, DKIM, DMARC and what goes with them.

dns.py asks; spf.py and dmarc.py read the records as a receiver does; checks.py says for each thing
whether it is right, and what to change. `postroom doctor --domain` shows it.
"""
