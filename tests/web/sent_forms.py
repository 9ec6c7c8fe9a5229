"""Forms on a page, read as a browser would send them."""

from __future__ import annotations

from selectolax.lexbor import LexborHTMLParser, LexborNode


def fields_of(page: str, action: str | None = None) -> dict[str, str]:
    """What the form for this address sends if nobody changes it; files and passwords are empty."""
    wanted = f'form[method="post"][action="{action}"]' if action else 'main form[method="post"]'
    form = LexborHTMLParser(page).css_first(wanted)
    assert form is not None, page
    fields: dict[str, str] = {}
    for node in form.css("input[name], textarea[name], select[name]"):
        value = _value(node)
        if value is not None:
            fields[str(node.attributes["name"])] = value
    return fields


def _value(node: LexborNode) -> str | None:
    """None for what is not sent."""
    if node.tag == "textarea":
        return node.text()
    if node.tag == "select":
        chosen = node.css_first("option[selected]") or node.css_first("option")
        return chosen.attributes.get("value") if chosen else None
    if node.attributes.get("type") in ("checkbox", "radio") and "checked" not in node.attributes:
        return None
    return node.attributes.get("value") or ""
