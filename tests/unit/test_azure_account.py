"""What may stand behind `azure:`."""

from __future__ import annotations

import pytest

from postroom.storage.azure.account import BadAccount, check_prefix, parse_account

KEY = "a2V5"


def test_the_emulator_is_on_this_machine_and_its_ports_can_be_moved() -> None:
    usual = parse_account("emulator")
    assert usual.table_url == "http://127.0.0.1:10002/devstoreaccount1"
    assert usual.is_emulator
    moved = parse_account("emulator?blob=1&queue=2&table=3")
    assert [moved.blob_url, moved.queue_url, moved.table_url] == [
        f"http://127.0.0.1:{port}/devstoreaccount1" for port in (1, 2, 3)
    ]
    assert parse_account("UseDevelopmentStorage=true") == usual


def test_a_connection_string_names_the_account_and_its_key() -> None:
    account = parse_account(
        f"DefaultEndpointsProtocol=https;AccountName=contoso;AccountKey={KEY};"
        "EndpointSuffix=core.windows.net"
    )
    assert (account.name, account.key, account.signature) == ("contoso", KEY, "")
    assert account.blob_url == "https://contoso.blob.core.windows.net"
    assert account.queue_url == "https://contoso.queue.core.windows.net"
    assert account.table_url == "https://contoso.table.core.windows.net"
    assert not account.is_emulator


def test_endpoints_in_a_connection_string_win() -> None:
    account = parse_account(
        f"AccountName=contoso;AccountKey={KEY};TableEndpoint=https://tables.contoso.edu/"
    )
    assert account.table_url == "https://tables.contoso.edu"
    assert account.blob_url == "https://contoso.blob.core.windows.net"


def test_a_shared_access_signature_takes_the_place_of_the_key() -> None:
    account = parse_account("AccountName=contoso;SharedAccessSignature=?sv=2020&sig=a%3D")
    assert (account.key, account.signature) == ("", "sv=2020&sig=a%3D")


@pytest.mark.parametrize("service", ["blob", "queue", "table"])
@pytest.mark.parametrize(
    "host", ["contoso.{}.core.windows.net", "contoso.z05.{}.storage.azure.net"]
)
def test_the_url_of_one_service_leads_to_all_and_needs_an_identity(host: str, service: str) -> None:
    account = parse_account(f"https://{host.format(service)}/")
    assert account.name == "contoso"
    assert account.queue_url == f"https://{host.format('queue')}"
    assert account.table_url == f"https://{host.format('table')}"
    assert (account.key, account.signature) == ("", "")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "contoso",
        "emulator?table=0",
        "emulator?disk=1",
        "emulator?table=http",
        "http://contoso.table.core.windows.net",  # a token must not travel in clear
        "https://contoso.core.windows.net",
        "https://contoso.table.core.windows.net/tables",
        "AccountName=contoso",
        "AccountName=contoso;AccountKey=not base64",
        f"AccountName=CONTOSO;AccountKey={KEY}",
        f"AccountKey={KEY}",
    ],
)
def test_anything_else_is_refused_with_a_sentence(address: str) -> None:
    with pytest.raises(BadAccount, match=r".{20}"):
        parse_account(address)


def test_a_key_is_never_shown() -> None:
    account = parse_account(f"AccountName=contoso;AccountKey={KEY}")
    assert KEY not in repr(account)
    assert KEY not in str(account)


@pytest.mark.parametrize("prefix", ["", "a", "stage2", "a" * 20])
def test_a_prefix_is_small_letters_and_digits(prefix: str) -> None:
    assert check_prefix(prefix) == prefix


@pytest.mark.parametrize("prefix", ["2a", "A", "a-b", "a_b", "ü", "a" * 21])
def test_a_prefix_that_no_table_or_queue_could_have_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="lower-case letters"):
        check_prefix(prefix)
