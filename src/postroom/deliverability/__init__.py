"""Whether receivers will trust emails from a domain: SPF, DKIM, DMARC and related checks.

dns.py looks records up; spf.py and dmarc.py read them as a receiver does; checks.py decides whether
each is right, and what to change. `postroom doctor --domain` shows the result.
"""
