"""Why a server cannot be reached, in words for people: what the error means, and what to change."""

from __future__ import annotations

import errno
import re
import socket
import ssl

from postroom.domain.outcome import clip
from postroom.transport.smtp_config import SmtpConfig, Tls

# Of OpenSSL: what a TLS client reads when the server answers in clear.
_NOT_TLS = {"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"}
# X509_V_ERR_…, as ssl.SSLCertVerificationError.verify_code has them.
_EXPIRED = 10
_UNKNOWN_AUTHORITY = (18, 19, 20, 21)
_OTHER_NAME = (62, 64)
_ERRNO = re.compile(r"\[Errno (\d+)\]")


def trouble_words(error: BaseException, config: SmtpConfig) -> str:
    """Of an error while connecting, or while TLS begins."""
    match error:
        case ssl.SSLCertVerificationError():
            return _certificate(error, config)
        case ssl.SSLError(reason=reason) if reason in _NOT_TLS:
            if config.tls is Tls.IMPLICIT:
                return "the port does not speak TLS from the start: leave ?tls=implicit out"
            return "the server does not answer in TLS after STARTTLS"
        case socket.gaierror(errno=socket.EAI_AGAIN):
            return f"the name server does not answer, so {config.host} cannot be looked up"
        case socket.gaierror():
            return f"the host name {config.host} cannot be found"
        case TimeoutError():
            return "no answer in time: check host and port, and the firewall between"
        case OSError():
            return _network(error, config)
    return clip(str(error) or type(error).__name__)


def _certificate(error: ssl.SSLCertVerificationError, config: SmtpConfig) -> str:
    told = f"its certificate is not trusted: {error.verify_message}"
    if error.verify_code == _EXPIRED:
        return f"{told}; the server needs a new one"
    if error.verify_code in _OTHER_NAME:
        return f"{told}; use the name in the certificate instead of {config.host}"
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return f"{told}; set POSTROOM_SMTP_CA_FILE to the authority that signed it"
    return told


def _network(error: OSError, config: SmtpConfig) -> str:
    """A host with several addresses has an error for each, in one text."""
    numbers = {error.errno} if error.errno else {int(each) for each in _ERRNO.findall(str(error))}
    if numbers == {errno.ECONNREFUSED}:
        return f"nothing listens on port {config.port} there: check port and server"
    if numbers and numbers <= {errno.EHOSTUNREACH, errno.ENETUNREACH}:
        return "there is no way to it from here: check the network"
    return clip(str(error) or type(error).__name__)
