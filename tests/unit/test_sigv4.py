"""The vectors that Amazon publishes for Signature Version 4 (aws-sig-v4-test-suite)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from postroom.transport.sigv4 import SigningKey, canonical_request, signed_headers

KEY = SigningKey("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "us-east-1", "service")
NOW = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
HOST = {"Host": "example.amazonaws.com"}
FORM = {**HOST, "Content-Type": "application/x-www-form-urlencoded"}

VECTORS = {
    "get-vanilla": (
        *("GET", "/", HOST, b""),
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    ),
    "get-vanilla-query-order-key-case": (
        *("GET", "/?Param2=value2&Param1=value1", HOST, b""),
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    "post-vanilla": (
        *("POST", "/", HOST, b""),
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
    ),
    "post-header-key-sort": (
        *("POST", "/", {**HOST, "My-Header1": "value1"}, b""),
        "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c",
    ),
    "post-x-www-form-urlencoded": (
        *("POST", "/", FORM, b"Param1=value1"),
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    ),
    "get-space": (
        *("GET", "/example space/", HOST, b""),
        "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741",
    ),
    "get-utf8": (
        *("GET", "/ሴ", HOST, b""),
        "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_a_request_is_signed_as_amazon_signs_it(name: str) -> None:
    method, path, headers, body, signature = VECTORS[name]
    signed = signed_headers(method, path, headers, body, KEY, NOW)
    names = ";".join(sorted({*(each.lower() for each in headers), "x-amz-date"}))
    assert signed["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders={names}, Signature={signature}"
    )


def test_blanks_in_a_header_and_an_empty_query_are_canonical() -> None:
    headers = {"host": "example.amazonaws.com", "my-header1": " value1  \t x "}
    lines = canonical_request("GET", "/?b=&a", headers, b"").split("\n")
    assert lines[2] == "a=&b="
    assert lines[4] == "my-header1:value1 \t x"


def test_the_secret_is_in_no_repr() -> None:
    assert KEY.secret not in repr(KEY)
