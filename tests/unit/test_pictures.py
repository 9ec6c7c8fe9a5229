"""Pictures that readers will not see are found by their addresses."""

from __future__ import annotations

import pytest
from selectolax.lexbor import LexborHTMLParser

from postroom.mail.pictures import SOURCE_CHARS_SHOWN, UnseenReason, unseen_pictures, why_unseen


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("", UnseenReason.NO_ADDRESS),
        ("logo.png", UnseenReason.RELATIVE),
        ("/images/logo.png", UnseenReason.RELATIVE),
        ("image001.png@01D5", UnseenReason.RELATIVE),
        (
            "//contoso.edu/logo.png",
            UnseenReason.RELATIVE,
        ),  # to the page it is on, and a mail is on none
        ("file:///C:/Users/Erika/logo.png", UnseenReason.OWN_COMPUTER),
        ("C:\\Users\\Erika\\logo.png", UnseenReason.OWN_COMPUTER),
        ("c:/logo.png", UnseenReason.OWN_COMPUTER),
        ("\\\\server\\share\\logo.png", UnseenReason.OWN_COMPUTER),
        ("cid:image001.png@01D5", UnseenReason.ATTACHMENT),
        ("data:image/png;base64,iVBOR", UnseenReason.IN_THE_HTML),
        ("DATA:image/png;base64,iVBOR", UnseenReason.IN_THE_HTML),
        ("http://127.0.0.1/logo.png", UnseenReason.PRIVATE_HOST),
        ("http://localhost:8080/logo.png", UnseenReason.PRIVATE_HOST),
        ("https://192.168.1.20/logo.png", UnseenReason.PRIVATE_HOST),
        ("https://10.0.0.1/logo.png", UnseenReason.PRIVATE_HOST),
        ("https://[::1]/logo.png", UnseenReason.PRIVATE_HOST),
        ("https://[fd00::1]/logo.png", UnseenReason.PRIVATE_HOST),
        ("https://intranet/logo.png", UnseenReason.PRIVATE_HOST),
        ("https://nas.local/logo.png", UnseenReason.PRIVATE_HOST),
        ("https://wiki.corp./logo.png", UnseenReason.PRIVATE_HOST),
        ("blob:https://contoso.edu/1", UnseenReason.UNKNOWN_SCHEME),
        ("ftp://contoso.edu/logo.png", UnseenReason.UNKNOWN_SCHEME),
        ("https://contoso.edu/logo.png", None),
        ("http://contoso.edu/logo.png", None),
        ("HTTPS://contoso.edu/logo.png", None),
        ("https://93.184.216.34/logo.png", None),
        ("https://{{ host }}/logo.png", None),
        ("{{ picture }}", None),
        ("https://[contoso/logo.png", None),
    ],
)
def test_the_source_shows_whether_a_picture_can_be_seen(
    source: str, why: UnseenReason | None
) -> None:
    assert why_unseen(source) is why


def test_pictures_are_found_wherever_html_has_them_each_once() -> None:
    document = LexborHTMLParser(
        '<body background="wall.png"><img src=" lo\ngo.png "><img src="logo.png"><img>'
        '<input type="image" src="send.png"><table background="https://contoso.edu/a.png"></table>'
    )
    assert unseen_pictures(document) == {
        UnseenReason.RELATIVE: ["logo.png", "send.png", "wall.png"],
        UnseenReason.NO_ADDRESS: [""],
    }


def test_of_a_picture_in_the_html_only_the_beginning_is_shown() -> None:
    document = LexborHTMLParser(f'<img src="data:image/png;base64,{"A" * 100_000}">')
    [shown] = unseen_pictures(document)[UnseenReason.IN_THE_HTML]
    assert len(shown) == SOURCE_CHARS_SHOWN
