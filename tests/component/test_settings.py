"""Settings: where they come from, and that all mistakes are told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.domain.address import parse_address
from postroom.domain.mailing_list import MailingList
from postroom.domain.message import Message, Status
from postroom.domain.web_address import mismatch
from postroom.flow.render import Site, message_parts
from postroom.mail.mime import compile_mail, format_date
from postroom.settings import BadSettings, load
from tests.clock import START


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "postroom.toml"


def test_without_anything_the_defaults_hold(file: Path) -> None:
    settings = load({}, file)
    assert settings.storage.get_secret_value() == "sqlite:///data/postroom.db"
    assert settings.transport.get_secret_value() == "outbox:"


@pytest.mark.parametrize(
    ("data", "storage"),
    [
        ("elsewhere", "sqlite:///elsewhere/postroom.db"),
        ("/var/lib/postroom/", "sqlite:////var/lib/postroom/postroom.db"),
    ],
)
def test_the_default_database_is_in_the_data_folder(file: Path, data: str, storage: str) -> None:
    settings = load({"POSTROOM_DATA": data}, file)
    assert settings.storage.get_secret_value() == storage
    assert settings.source_kind("storage") == "default"
    named = load({"POSTROOM_DATA": data, "POSTROOM_STORAGE": "azure:emulator"}, file)
    assert named.storage.get_secret_value() == "azure:emulator"


def test_the_environment_goes_before_the_file_and_the_file_before_the_default(file: Path) -> None:
    file.write_text('lanes = 9\nlease_s = 40\nurl = "https://post.contoso.edu/"\n')
    settings = load({"POSTROOM_LANES": "7", "HOME": "/root"}, file)
    assert (settings.lanes, settings.lease_s) == (7, 40.0)
    assert settings.url == "https://post.contoso.edu"


def test_a_secret_may_be_in_its_own_file(file: Path, tmp_path: Path) -> None:
    secret = tmp_path / "transport"
    secret.write_text("smtp://ada:word@mail.contoso.edu:587\n")
    settings = load({"POSTROOM_TRANSPORT_FILE": str(secret)}, file)
    assert settings.transport.get_secret_value() == "smtp://ada:word@mail.contoso.edu:587"
    assert "word" not in repr(settings)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_file_goes_before_the_value_whatever_the_order_of_the_environment(
    file: Path, tmp_path: Path, is_first: bool
) -> None:
    """The image names a storage of its own; a deployment names the file with the real one."""
    (tmp_path / "storage").write_text("azure:emulator\n")
    environ = {
        "POSTROOM_STORAGE": "sqlite:////data/postroom.db",
        "POSTROOM_STORAGE_FILE": str(tmp_path / "storage"),
    }
    settings = load(environ if is_first else dict(reversed(environ.items())), file)
    assert settings.storage.get_secret_value() == "azure:emulator"


def test_a_secret_that_is_no_text_is_reported_without_showing_it(
    file: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "transport"
    secret.write_bytes(b"smtp://ada:w\xf6rd@mail.contoso.edu:587\n")
    with pytest.raises(BadSettings) as caught:
        load({"POSTROOM_TRANSPORT_FILE": str(secret)}, file)
    assert caught.value.mistakes == [
        f"POSTROOM_TRANSPORT_FILE: {secret} cannot be read (it is not text in UTF-8)."
    ]


def test_all_mistakes_are_reported_at_once(file: Path) -> None:
    file.write_text("lanse = 3\nclaim_s = 1\n")
    environ = {
        "POSTROOM_URL": "post.contoso.edu",
        "POSTROOM_BIND": "8025",
        "POSTROOM_LOG_LEVEL": "loud",
        "POSTROOM_NO_SUCH": "1",
        "POSTROOM_STORAGE_FILE": "/nonexistent/secret",
    }
    with pytest.raises(BadSettings) as caught:
        load(environ, file)
    told = "\n".join(caught.value.mistakes)
    names = ["lanse", "CLAIM_S", "URL", "BIND", "LOG_LEVEL", "NO_SUCH", "STORAGE_FILE"]
    assert [name for name in names if name not in told] == []
    assert len(caught.value.mistakes) == len(names)


def test_a_file_that_is_no_toml_is_reported(file: Path) -> None:
    file.write_text("lanes == 3\n")
    with pytest.raises(BadSettings, match="cannot be read"):
        load({}, file)


@pytest.mark.parametrize(
    "url", ["https://contoso.edu/post", "https://contoso.edu//", "https://contoso.edu/?list=1"]
)
def test_a_public_address_with_a_path_is_refused(file: Path, url: str) -> None:
    """Links are made of it and of paths of our own: behind a path they would lead nowhere."""
    with pytest.raises(
        BadSettings, match="POSTROOM_URL: must be a web address with an ASCII host and no path"
    ):
        load({"POSTROOM_URL": url}, file)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CLAIM_S", "604801"),  # no queue hides an item for longer: the sender would die of it
        ("ARCHIVE_DAYS", "999999"),  # before there were dates: nothing would ever be swept
        ("STOP_GRACE_S", "inf"),  # no web could be started
    ],
)
def test_a_number_that_no_role_could_work_with_is_refused(
    file: Path, name: str, value: str
) -> None:
    with pytest.raises(
        BadSettings, match=f"POSTROOM_{name}: .* (less than or equal to|a finite number)"
    ):
        load({f"POSTROOM_{name}": value}, file)


@pytest.mark.parametrize("port", [65536, 65537, 99999])
def test_a_port_that_no_machine_has_is_refused(file: Path, port: int) -> None:
    with pytest.raises(BadSettings, match="POSTROOM_BIND: must be an address and a port such as"):
        load({"POSTROOM_BIND": f"127.0.0.1:{port}"}, file)


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "127.0.0.1:65535", "[::1]:8025"])
def test_every_port_that_a_machine_has_may_be_bound(file: Path, bind: str) -> None:
    assert load({"POSTROOM_BIND": bind}, file).bind == bind


@pytest.mark.parametrize(
    "url",
    [
        "post.contoso.edu",
        "https://post.contoso.edu/lists",
        "https://post.contoso.edu'<b>",
        "https://b\u00fccher.example",
        "http://[::1]:8025",
    ],
)
def test_an_address_of_the_site_that_cannot_be_in_a_mail_is_refused(file: Path, url: str) -> None:
    with pytest.raises(BadSettings, match="with an ASCII host"):
        load({"POSTROOM_URL": url}, file)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8025", "https://post.contoso.edu:8443", "https://xn--bcher-kva.example"],
)
def test_every_other_address_of_the_site_is_in_the_head_of_a_mail(file: Path, url: str) -> None:
    site = Site(load({"POSTROOM_URL": url}, file).url, "a secret")
    sender = "a@contoso.edu"
    made = MailingList(name="contoso1", description="", sender=sender, created_at=START)
    message = Message(
        ref="1",
        list_name="contoso1",
        subject="News",
        list_created_at=START,
        sender=sender,
        status=Status.DRAFT,
        created_at=START,
    )
    compiled = compile_mail(message_parts(message, made, None, "Hi", site))
    mail = compiled.splice(
        parse_address("ada@contoso.edu"),
        {},
        message_id="<a@contoso.edu>",
        date=format_date(START),
        unsubscribe_url=site.unsubscribe_url("contoso1", "0" * 32),
    ).source
    assert f"<{url}/".encode() in mail


# --- The address that links begin with ----------------------------------------------------------


@pytest.mark.parametrize(
    ("bind", "url"),
    [
        ("127.0.0.1:8030", "http://127.0.0.1:8030"),
        ("0.0.0.0:8030", "http://127.0.0.1:8030"),
        ("192.0.2.7:8030", "http://192.0.2.7:8030"),
        ("localhost:8030", "http://localhost:8030"),
        ("[::]:8030", "http://localhost:8030"),
        ("[::1]:8030", "http://localhost:8030"),
        ("127.0.0.1:80", "http://127.0.0.1"),
    ],
)
def test_if_no_url_is_set_links_follow_the_bound_address(file: Path, bind: str, url: str) -> None:
    for environ in ({"POSTROOM_BIND": bind}, {"POSTROOM_BIND": bind, "POSTROOM_URL": ""}):
        settings = load(environ, file)
        assert (settings.url, settings.is_url_given) == (url, False)


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("https://Post.Contoso.edu/", "https://post.contoso.edu"),
        ("https://post.contoso.edu:443", "https://post.contoso.edu"),
        ("http://post.contoso.edu:80", "http://post.contoso.edu"),
        ("http://post.contoso.edu:443", "http://post.contoso.edu:443"),
    ],
)
def test_an_address_is_kept_as_browsers_write_it(file: Path, typed: str, url: str) -> None:
    settings = load({"POSTROOM_URL": typed}, file)
    assert (settings.url, settings.is_url_given) == (url, True)


FITTING = [
    ("127.0.0.1:8025", ""),
    ("192.0.2.7:8025", ""),
    ("0.0.0.0:8025", "http://127.0.0.1:8025"),
    ("0.0.0.0:8025", "http://server:8025"),
    ("127.0.0.1:8025", "https://post.contoso.edu"),  # behind a proxy
    ("127.0.0.1:8025", "http://post.contoso.edu"),
    ("127.0.0.1:8025", "http://localhost:8025"),
]
NOT_FITTING = [
    ("0.0.0.0:8030", "", "which works only on this machine"),
    ("[::]:8030", "", "which works only on this machine"),
    ("0.0.0.0:8030", "http://127.0.0.1:8025", "links will not work"),
    ("127.0.0.1:8030", "http://localhost", "links will not work"),
    ("192.0.2.7:8025", "http://127.0.0.1:8025", "links will not work"),
    ("127.0.0.1:8025", "http://server:8025", "which only this machine can reach"),
]


@pytest.mark.parametrize(
    ("bind", "url", "words"), [*((bind, url, "") for bind, url in FITTING), *NOT_FITTING]
)
def test_an_address_that_leads_elsewhere_is_reported(
    file: Path, bind: str, url: str, words: str
) -> None:
    settings = load({"POSTROOM_BIND": bind, "POSTROOM_URL": url}, file)
    told = str(mismatch(settings.url, settings.bind, is_given=settings.is_url_given) or "")
    assert words in told
    assert bool(told) == bool(words)
