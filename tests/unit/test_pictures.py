"""Pictures that nobody will see are found by how their addresses are written."""

from __future__ import annotations

import pytest
from selectolax.lexbor import LexborHTMLParser

from postroom.mail.pictures import SOURCE_CHARS_SHOWN, Unseen, unseen_pictures, why_unseen


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("", Unseen.NO_ADDRESS),
        ("logo.png", Unseen.RELATIVE),
        ("/images/logo.png", Unseen.RELATIVE),
        ("image001.png@01D5", Unseen.RELATIVE),
        ("//contoso.edu/logo.png", Unseen.RELATIVE),  # to the page it is on, and a mail is on none
        ("file:///C:/Users/Erika/logo.png", Unseen.OWN_COMPUTER),
        ("C:\\Users\\Erika\\logo.png", Unseen.OWN_COMPUTER),
        ("c:/logo.png", Unseen.OWN_COMPUTER),
        ("\\\\server\\share\\logo.png", Unseen.OWN_COMPUTER),
        ("cid:image001.png@01D5", Unseen.ATTACHMENT),
        ("data:image/png;base64,iVBOR", Unseen.IN_THE_HTML),
        ("DATA:image/png;base64,iVBOR", Unseen.IN_THE_HTML),
        ("http://127.0.0.1/logo.png", Unseen.PRIVATE_HOST),
        ("http://localhost:8080/logo.png", Unseen.PRIVATE_HOST),
        ("https://192.168.1.20/logo.png", Unseen.PRIVATE_HOST),
        ("https://10.0.0.1/logo.png", Unseen.PRIVATE_HOST),
        ("https://[::1]/logo.png", Unseen.PRIVATE_HOST),
        ("https://[fd00::1]/logo.png", Unseen.PRIVATE_HOST),
        ("https://intranet/logo.png", Unseen.PRIVATE_HOST),
        ("https://nas.local/logo.png", Unseen.PRIVATE_HOST),
        ("https://wiki.corp./logo.png", Unseen.PRIVATE_HOST),
        ("blob:https://contoso.edu/1", Unseen.UNKNOWN_SCHEME),
        ("ftp://contoso.edu/logo.png", Unseen.UNKNOWN_SCHEME),
        ("https://contoso.edu/logo.png", None),
        ("http://contoso.edu/logo.png", None),
        ("HTTPS://contoso.edu/logo.png", None),
        ("https://93.184.216.34/logo.png", None),
        ("https://{{ host }}/logo.png", None),
        ("{{ picture }}", None),
        ("https://[contoso/logo.png", None),
    ],
)
def test_a_source_tells_whether_it_can_be_seen(source: str, why: Unseen | None) -> None:
    assert why_unseen(source) is why


def test_pictures_are_found_wherever_html_has_them_each_once() -> None:
    document = LexborHTMLParser(
        '<body background="wall.png"><img src=" lo\ngo.png "><img src="logo.png"><img>'
        '<input type="image" src="send.png"><table background="https://contoso.edu/a.png"></table>'
    )
    assert unseen_pictures(document) == {
        Unseen.RELATIVE: ["logo.png", "send.png", "wall.png"],
        Unseen.NO_ADDRESS: [""],
    }


def test_of_a_picture_in_the_html_only_the_beginning_is_shown() -> None:
    document = LexborHTMLParser(f'<img src="data:image/png;base64,{"A" * 100_000}">')
    [shown] = unseen_pictures(document)[Unseen.IN_THE_HTML]
    assert len(shown) == SOURCE_CHARS_SHOWN
