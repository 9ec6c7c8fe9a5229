"""`postroom dkim …`: create keys that sign emails, and show the DNS records they need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from postroom.cli.output import AsJson, echo_err, show
from postroom.domain.address import parse_domain
from postroom.domain.dkim import KeyPlace, check_selector, parse_key_places
from postroom.domain.errors import BadInput

if TYPE_CHECKING:
    from postroom.mail.dkim_keys import DkimKey

NUMBERS_MAX = 1000  # of selectors that are tried for a new key
FOLDER = "dkim"  # in the data folder

app = typer.Typer(no_args_is_help=True, help="Keys that sign emails (DKIM).")


@app.command("create")
def create(
    domain: Annotated[
        str, typer.Option("--domain", metavar="DOMAIN", help="The domain of the From address.")
    ],
    selector: Annotated[
        str | None,
        typer.Option("--selector", metavar="NAME", help="Default: the next of s1, s2, …"),
    ] = None,
    ed25519: Annotated[
        bool,
        typer.Option("--ed25519", help="An Ed25519 key, for a second signature (RFC 8463)."),
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Default: a new file in the data folder."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a private key, and print its DNS record and the setting to add."""
    from postroom.mail.dkim_keys import Algorithm, create_key
    from postroom.settings import load
    from postroom.wiring.parts import create_private_folder

    settings = load()
    domain = parse_domain(domain)
    places = parse_key_places(settings.dkim_keys)
    folder = settings.data.absolute() / FOLDER
    if selector is None:
        selector = _free_selector("e" if ed25519 else "s", domain, places, folder)
    selector = check_selector(selector)
    if (domain, selector) in {(place.domain, place.selector) for place in places}:
        raise BadInput(f"The selector {selector} of {domain} is in use. Choose another one.")
    if file is None:
        create_private_folder(settings.data)
        create_private_folder(folder)
        file = _file_of(folder, domain, selector)
    algorithm = Algorithm.ED25519 if ed25519 else Algorithm.RSA
    key = create_key(file, domain, selector, algorithm)
    new = KeyPlace(domain, selector, str(file.absolute()))
    setting = "POSTROOM_DKIM_KEYS=" + ",".join(map(str, (new, *places)))
    data = _data(key) | {"file": new.path, "setting": setting}
    show(data, as_json, *_instructions(key, new.path, setting))
    is_alone = ed25519 and not any(place.domain == domain for place in places)
    if is_alone:
        echo_err("Many receivers cannot verify Ed25519. Create an RSA key too.")


@app.command("show")
def show_records(
    domain: Annotated[
        str | None, typer.Option("--domain", metavar="DOMAIN", help="Only of this domain.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the DNS records of the keys in POSTROOM_DKIM_KEYS."""
    from postroom.settings import load
    from postroom.wiring.dkim import dkim_keys_of

    wanted = None if domain is None else parse_domain(domain)
    keys = [key for key in dkim_keys_of(load()) if wanted in (None, key.domain)]
    show([_data(key) for key in keys], as_json, *(line for key in keys for line in _record(key)))
    if not keys and not as_json:
        whose = f" for {wanted}" if wanted else ""
        echo_err(f"POSTROOM_DKIM_KEYS contains no key{whose}. “postroom dkim create” creates one.")


def _free_selector(letter: str, domain: str, places: tuple[KeyPlace, ...], folder: Path) -> str:
    used = {place.selector for place in places if place.domain == domain}
    for number in range(1, NUMBERS_MAX):
        selector = f"{letter}{number}"
        if selector not in used and not _file_of(folder, domain, selector).exists():
            return selector
    raise BadInput("Name the new key with --selector.")


def _file_of(folder: Path, domain: str, selector: str) -> Path:
    return folder / f"{domain}-{selector}.pem"


def _instructions(key: DkimKey, path: str, setting: str) -> Iterator[str]:
    yield f"The private key is in {path}. Only its owner can read it; keep it that way."
    yield ""
    yield f"1. Add this TXT record to the DNS of {key.domain}:"
    yield ""
    yield from _record(key)
    yield ""
    yield "2. Set:"
    yield ""
    yield f"   {setting}"
    yield ""
    yield f"3. When “postroom doctor --domain {key.domain}” finds the record, restart the senders."


def _record(key: DkimKey) -> Iterator[str]:
    yield f"   name       {key.record_name}"
    yield f"   value      {key.record}"
    yield f"   zone file  {key.zone_line}"


def _data(key: DkimKey) -> dict[str, Any]:
    return {
        "domain": key.domain,
        "selector": key.selector,
        "algorithm": key.algorithm,
        "record_name": key.record_name,
        "record": key.record,
        "zone_line": key.zone_line,
    }
