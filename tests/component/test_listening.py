"""The address of the web role: IPv4 or IPv6, ours alone while it is open."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from postroom.settings import BadSettings, Settings, load
from postroom.wiring.roles import listening
from postroom_bench.ports import held_port


def has_ipv6() -> bool:
    try:
        with closing(socket.socket(socket.AF_INET6)) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def bound_to(address: str) -> Settings:
    return load({"POSTROOM_BIND": address}, Path("no such file"))


def greets(listener: socket.socket) -> bool:
    """Whether who connects to the address is connected to this listener."""
    listener.settimeout(60)
    with closing(socket.create_connection(listener.getsockname()[:2], timeout=60)) as caller:
        accepted, _ = listener.accept()
        with closing(accepted):
            return bool(accepted.getpeername()[:2] == caller.getsockname()[:2])


@pytest.mark.parametrize("address", ["[::1]:0", "::1:0"])
def test_it_listens_on_an_ipv6_address_or_says_that_there_is_none(address: str) -> None:
    if not has_ipv6():
        with pytest.raises(BadSettings, match="cannot listen"), listening(bound_to(address)):
            pass
        return
    with listening(bound_to(address)) as listener:
        assert listener.getsockname()[0] == "::1"
        assert greets(listener)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0"])
def test_it_listens_on_an_ipv4_address_or_a_name(address: str) -> None:
    with listening(bound_to(address)) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
        assert greets(listener)


def test_the_address_is_free_again_afterwards() -> None:
    with held_port() as port:
        for _ in range(2):
            with listening(bound_to(f"127.0.0.1:{port}")) as listener:
                assert greets(listener)


def test_an_address_that_is_taken_is_told_by_the_name_of_its_setting() -> None:
    with listening(bound_to("127.0.0.1:0")) as listener:
        taken = f"127.0.0.1:{listener.getsockname()[1]}"
        refused = pytest.raises(BadSettings, match=f"POSTROOM_BIND: cannot listen on {taken}")
        with refused, listening(bound_to(taken)):
            pass
