"""Conditions and loops in bodies: what they choose, what they refuse, and that they stay small."""

from __future__ import annotations

import pytest

from postroom.domain.address import parse_address, parse_mailbox
from postroom.mail.body import text_from_html
from postroom.mail.control_flow import (
    OUTPUT_CHARS_MAX,
    STEPS_MAX,
    Regions,
    compile_body,
    split_tags,
)
from postroom.mail.merge import BadTemplate, fill
from postroom.mail.mime import MailParts, compile_mail
from postroom.transport.provider.content import PlaceholderTemplate

SENDER = parse_mailbox("news@contoso.edu")
WHO = parse_address("ada@contoso.edu")


def merged(template: str, *, is_html: bool = True, **values: str) -> str:
    segments, regions = compile_body(template, is_html=is_html)
    return fill(segments, Regions(regions).with_values(values))


@pytest.mark.parametrize(
    ("city", "expected"), [("Oslo", "<p>here</p>"), ("Rome", "<p>there</p>"), ("", "<p>where</p>")]
)
def test_a_condition_chooses_one_branch(city: str, expected: str) -> None:
    template = '<p>{% if city == "Oslo" %}here{% elif city %}there{% else %}where{% endif %}</p>'
    assert merged(template, city=city) == expected
    assert merged(template.replace('"', "&quot;"), city=city) == expected  # as editors write it


def test_values_are_escaped_for_their_place_within_a_region() -> None:
    template = (
        '{% if name %}<a title="{{ name }}" href="https://a/{{ name }}">{{ name }}</a>{% endif %}'
        "{% for one in name | split('|') %}<b>{{ one }}</b>{{ loop.index }}{% endfor %}"
    )
    assert merged(template, name='"<x>|&') == (
        '<a title="&quot;&lt;x&gt;|&amp;" href="https://a/%22%3Cx%3E%7C%26">'
        "&quot;&lt;x&gt;|&amp;</a><b>&quot;&lt;x&gt;</b>1<b>&amp;</b>2"
    )


def test_values_never_run() -> None:
    value = "{% if 1 %}{{ 7 }}\x01=name=\x02\x030\x04"
    assert "{% if 1 %}{{ 7 }}" in merged("{% if name %}{{ name }}{% endif %}", name=value)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{% if a %}x", "never closed"),
        ("x{% endif %}", "no matching"),
        ("{% if a %}{% endfor %}", "no matching"),
        ("{% set a = 1 %}", "not known"),
        ("{% include 'x' %}", "not known"),
        ("{% if a ~ a %}{% endif %}", "not allowed"),
        ("{% if a * 9 %}{% endif %}", "not allowed"),
        ("{% if a[0] %}{% endif %}", "not allowed"),
        ("{% if a.upper() %}{% endif %}", "not known"),
        ("{% if a | safe %}{% endif %}", "not known"),
        ("{% if %}x{% endif %}", "missing"),
        ("{% if a == %}x{% endif %}", "cannot be parsed"),
        ("{% for a %}x{% endfor %}", "Write it as"),
        ("<p {% if a %}class='x'{% endif %}>", "inside an HTML tag"),
        ("<style>{% if a %}p{}{% endif %}</style>", "inside an HTML tag"),
        ("{% if a %}" * 9 + "{% endif %}" * 9, "nested"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_sentence(template: str, why: str) -> None:
    with pytest.raises(BadTemplate, match=why):
        compile_body(template, is_html=True)


def test_a_region_that_grows_too_large_or_takes_too_long_shows_nothing() -> None:
    big = "x" * (OUTPUT_CHARS_MAX // 100)
    template = f"a{{% for one in all | split(',') %}}{big}{{% endfor %}}b"
    assert merged(template, is_html=False, all=",".join("1" * 300)) == "ab"
    nested = "{% for a in x | split(',') %}{% for b in x | split(',') %}.{% endfor %}{% endfor %}"
    assert merged(f"a{nested}b", is_html=False, x=",".join("1" * 900)) == "ab"


@pytest.mark.parametrize(
    "call", ["n | int(0)", "n | split(',', 2)", "(n | split)(1)", "n | first(1)"]
)
def test_a_region_with_a_wrong_call_is_left_out_and_stops_no_sender(call: str) -> None:
    template = f"a{{% if {call} %}}x{{% else %}}y{{% endif %}}b"
    assert merged(template, is_html=False, n="1,2") == "ab"
    _segments, regions = compile_body(template, is_html=False)
    assert Regions(regions).takes_over(STEPS_MAX, {"n": "1,2"})  # so that a check warns


def test_a_region_that_is_left_out_is_noted_once() -> None:
    template = "a{% for one in all | split(',') %}" + "x" * 9999 + "{% endfor %}b"
    segments, [region] = compile_body(template, is_html=False)
    together = Regions([region])
    noted: list[str] = []
    region.note_left_out = lambda: noted.append("left out")
    assert fill(segments, together.with_values({"all": "1"})) == f"a{'x' * 9999}b"
    assert noted == []
    for _recipient in range(3):
        assert fill(segments, together.with_values({"all": ",".join("1" * 300)})) == "ab"
    assert noted == ["left out"]


def test_a_mail_is_spliced_the_same_in_both_renditions_and_for_providers() -> None:
    html = "<p>Dear {{ name }},</p>\n{% if city %}<p>{{ city }}\nis ä</p>\n{% endif %}<p>Bye</p>"
    compiled = compile_mail(MailParts(sender=SENDER, subject="x", html=html))
    assert compiled.fields == {"name", "city"}
    for eight_bit in (True, False):
        source = compiled.splice(
            WHO, {"city": "Oslo"}, message_id="<a@b.co>", date="Mon", eight_bit=eight_bit
        ).source
        assert b"<p>Oslo" in source
        assert all(len(line) <= 998 for line in source.split(b"\r\n"))
    template = PlaceholderTemplate(compiled, lambda number: f"-{number}-")
    values = compiled.regions.with_values({"name": "Ada", "city": ""})
    assert sorted(template.values(values).values()) == ["", "", "Ada", "Ada"]


def test_tags_stay_in_the_text_part_also_from_tables() -> None:
    html = "<table>{% for a in b | split %}<tr><td>{{ a }}</td></tr>{% endfor %}</table>"
    assert [tag for tag in split_tags(text_from_html(html)) if "{%" in tag] == [
        "{% for a in b | split %}",
        "{% endfor %}",
    ]


@pytest.mark.parametrize(
    "html",
    [
        "{% if vip %}<p>Code</p>{% else %}<p>Hello</p>{% endif %}",
        "<!doctype html>{% if vip %}<p>Code</p>{% else %}<p>Hello</p>{% endif %}",
        "<title>x</title>{% if vip %}<p>Code</p>{% else %}Hello{% endif %}",
        "<html><head>{% if vip %}</head><body>Code{% else %}Hello{% endif %}</body></html>",
        "<p>{% if vip %}Code{% else %}Hello</p></body>{% endif %}</html>",
        "<ul>{% if vip %}<li>Code</li>{% else %}<li>Hello</li>{% endif %}</ul>",
        "<table><tr>{% if vip %}<td>Code</td>{% else %}<td>Hello</td>{% endif %}</tr></table>",
        "<pre>{% if vip %}Code{% else %}Hello{% endif %}</pre>",
        "<div>" * 120 + "{% if vip %}Code{% else %}Hello{% endif %}" + "</div>" * 120,
    ],
)
def test_the_text_part_shows_nobody_what_the_html_does_not_show_them(html: str) -> None:
    compiled = compile_mail(MailParts(sender=SENDER, subject="x", html=html))
    for vip, seen, unseen in (("1", "Code", "Hello"), ("", "Hello", "Code")):
        text = fill(compiled.text, compiled.regions.with_values({"vip": vip}))
        assert seen in text
        assert unseen not in text


def test_a_loop_over_items_stays_one_in_the_text_part() -> None:
    html = "<ul>{% for one in all | split %}<li>{{ one }}</li>{% endfor %}</ul>"
    compiled = compile_mail(MailParts(sender=SENDER, subject="x", html=html))
    text = fill(compiled.text, compiled.regions.with_values({"all": "a,b"}))
    assert [line for line in text.split("\r\n") if line] == ["* a", "* b"]


def test_a_subject_has_no_conditions() -> None:
    with pytest.raises(BadTemplate, match="subject"):
        compile_mail(MailParts(sender=SENDER, subject="{% if a %}x{% endif %}", text="x"))


def test_what_a_loop_writes_has_the_same_limit() -> None:
    template = "{% for y in x | split('|') %}{% for i in c | split %}" + "{{ y }}" * 20
    template += "{% endfor %}{% endfor %}"
    assert merged(template, x='"' * 2000, c="1") == "&quot;" * 40_000
    assert merged(template, x='"' * 2000, c=",".join("1" * 200)) == ""  # 48 MB without the limit


def test_splitting_again_and_again_has_a_limit() -> None:
    template = "{% for i in c | split %}{% if c | split == d %}{% endif %}x{% endfor %}"
    assert merged(template, c=",".join("1" * 100)) == "x" * 100
    assert merged(template, c=",".join("1" * 1000)) == ""


def test_all_regions_of_a_mail_share_the_limit() -> None:
    """A hundred of them would write 25 MB for one recipient."""
    part = "x" * (OUTPUT_CHARS_MAX // 4 - 10)
    large = f"{{% if a %}}{part}{{% endif %}}"
    small = "{% if a %}small{% endif %}"
    assert merged(large * 6 + small, is_html=False, a="1") == part * 4 + "small"


def test_each_recipient_has_the_whole_limit() -> None:
    template = "{% for i in c | split %}{{ i }}{% endfor %}"
    segments, regions = compile_body(template, is_html=True)
    together = Regions(regions)
    for _time in range(OUTPUT_CHARS_MAX // 2000 + 10):
        assert len(fill(segments, together.with_values({"c": "x" * 2000}))) == 2000


def test_all_regions_of_a_mail_share_the_steps() -> None:
    """A hundred of them would take two seconds for one recipient."""
    heavy = "{% for i in c | split %}{% if i | int == 1 or i | int == 2 %}{% endif %}x{% endfor %}"
    rounds = 200
    values = {"c": ",".join("0" * rounds)}
    one, [region] = compile_body(heavy, is_html=True)
    assert fill(one, Regions([region]).with_values(values)) == "x" * rounds
    assert not Regions([region]).takes_over(STEPS_MAX // 4, values)
    segments, regions = compile_body(heavy * 50 + "{% if c %}end{% endif %}", is_html=True)
    together = Regions(regions)
    assert together.takes_over(STEPS_MAX, values)
    assert fill(segments, together.with_values(values)) == "end"
    assert fill(segments, together.with_values({"c": "0"})) == "x" * 50 + "end"


def test_a_single_region_may_use_what_the_others_leave() -> None:
    loop = "{% for i in c | split %}{{ i }}{% endfor %}"
    values = {"c": ",".join("0" * 900)}
    template = loop + "{% if c == 1 %}{% endif %}" * 20
    assert merged(template, c=values["c"]) == "0" * 900
