"""DKIM keys: which are accepted, how they are published, and that nobody sees them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import dns.zone
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from postroom.domain.dkim import KeyPlace, parse_key_places
from postroom.domain.errors import AlreadyThere, BadInput
from postroom.mail.dkim_keys import Algorithm, DkimKey, create_key, load_keys, public_in
from postroom.records.names import STORAGE_NAMES
from postroom.settings import BadSettings, load
from postroom.storage.memory import MemoryStorage
from postroom.wiring.transports import transport_of
from tests.clock import MovableClock
from tests.dkim_keys import ed25519_key, rsa_key

SECRET = base64.b64encode(b"a very secret key").decode()


def written(folder: Path, private: object, password: bytes = b"") -> str:
    assert isinstance(private, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | Ed25519PrivateKey)
    hidden = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    path = folder / "key.pem"
    path.write_bytes(
        private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
    )
    return str(path)


def place(path: str, domain: str = "contoso.edu", selector: str = "s1") -> KeyPlace:
    return KeyPlace(domain, selector, path)


# --- The setting ------------------------------------------------------------------------------


def test_the_setting_names_domain_selector_and_file() -> None:
    assert parse_key_places(
        " Contoso.EDU:S2:/etc/s2.pem,\n müller.example:s1:C:\\keys\\a b.pem,"
    ) == (
        KeyPlace("contoso.edu", "s2", "/etc/s2.pem"),
        KeyPlace("xn--mller-kva.example", "s1", "C:\\keys\\a b.pem"),
    )
    assert parse_key_places("") == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("contoso.edu:s1", "entry 1 must be a domain, a selector and a file"),
        ("contoso.edu:s1:a.pem, contoso.edu:s1:b.pem", "named twice"),
        ("contoso:s1:a.pem", "not a domain name"),
        ("contoso.edu:s_1:a.pem", "cannot be a selector"),
        ("contoso.edu:s1:", "entry 1 must be"),
        (SECRET, "entry 1 must be"),
    ],
)
def test_a_wrong_setting_is_refused_and_not_repeated(text: str, why: str) -> None:
    with pytest.raises(BadSettings, match=why) as refused:
        load({"POSTROOM_DKIM_KEYS": text}, Path("none.toml"))
    assert SECRET not in str(refused.value)


# --- Files ------------------------------------------------------------------------------------


def test_one_file_can_sign_for_several_domains(tmp_path: Path) -> None:
    path = written(tmp_path, rsa_key().private)
    keys = load_keys([place(path), place(path, "fabrikam.com", "x")])
    assert [key.record_name for key in keys] == [
        "s1._domainkey.contoso.edu",
        "x._domainkey.fabrikam.com",
    ]
    assert keys[0].public == keys[1].public == rsa_key().public


def test_a_key_shows_nothing_of_itself() -> None:
    assert "private" not in repr(rsa_key())


@pytest.mark.parametrize(
    ("private", "password", "why"),
    [
        (rsa.generate_private_key(65537, 1024), b"", "of 1024 bits"),
        (ec.generate_private_key(ec.SECP256R1()), b"", "neither an RSA nor an Ed25519 key"),
        (Ed25519PrivateKey.generate(), b"", "only an Ed25519 key"),
        (Ed25519PrivateKey.generate(), b"secret", "without a password"),
    ],
)
def test_a_key_that_receivers_would_not_accept_is_refused(
    tmp_path: Path, private: object, password: bytes, why: str
) -> None:
    path = written(tmp_path, private, password)
    with pytest.raises(BadInput, match=why):
        load_keys([place(path)])


def test_what_is_no_key_is_refused_without_its_content(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    for content in (SECRET, f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"):
        path.write_text(content)
        with pytest.raises(BadInput, match="is not a private key in PEM") as refused:
            load_keys([place(str(path))])
        assert SECRET not in str(refused.value)
        assert refused.value.__cause__ is None
    path.write_bytes(b"x" * 1_000_000)
    with pytest.raises(BadInput, match="is not a private key in PEM"):
        load_keys([place(str(path))])
    with pytest.raises(BadInput, match="No such file"):
        load_keys([place(str(tmp_path / "none.pem"))])


def test_a_sender_without_its_key_does_not_start(tmp_path: Path) -> None:
    environ = {
        "POSTROOM_TRANSPORT": "smtp://localhost:25",
        "POSTROOM_DKIM_KEYS": f"contoso.edu:s1:{tmp_path}/none.pem",
    }
    entry = transport_of(load(environ, tmp_path / "none.toml"))
    clock = MovableClock()
    with pytest.raises(BadSettings, match=r"POSTROOM_DKIM_KEYS: .* \(from the environment\)"):
        entry.open(MemoryStorage(clock, STORAGE_NAMES), clock)


# --- Creating and publishing ------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", Algorithm)
def test_a_new_key_is_its_owners_alone_and_never_overwritten(
    tmp_path: Path, algorithm: Algorithm
) -> None:
    path = tmp_path / "key.pem"
    key = create_key(path, "contoso.edu", "s1", algorithm)
    assert path.stat().st_mode & 0o777 == 0o600
    assert key.algorithm is algorithm
    before = path.read_bytes()
    with pytest.raises(AlreadyThere):
        create_key(path, "contoso.edu", "s1", algorithm)
    assert path.read_bytes() == before
    with pytest.raises(BadInput, match="cannot be written"):
        create_key(tmp_path / "none" / "key.pem", "contoso.edu", "s1", algorithm)


@pytest.mark.parametrize("make", [rsa_key, ed25519_key])
def test_a_name_server_can_load_the_zone_line(make: Callable[[], DkimKey]) -> None:
    key = make()
    zone = dns.zone.from_text(key.zone_line, "contoso.edu.", check_origin=False)
    [[record]] = [list(found) for _, found in zone.iterate_rdatasets("TXT")]
    assert all(len(each) <= 255 for each in record.strings)
    assert b"".join(record.strings).decode() == key.record
    assert public_in(key.record) == key.public


def test_the_public_half_is_what_the_rfcs_ask_for() -> None:
    assert len(ed25519_key().public) == 32  # RFC 8463 4: the key itself, without ASN.1
    der = serialization.load_der_public_key(rsa_key().public)
    assert isinstance(der, rsa.RSAPublicKey)
