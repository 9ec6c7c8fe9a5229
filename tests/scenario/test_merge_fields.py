"""Deliveries carry the attributes that their message uses, and no others."""

from __future__ import annotations

import msgspec
import pytest

from postroom.domain.message import MergeFields, ref_of_call
from postroom.flow import compose
from postroom.flow.compose import Draft, Origin, Revision
from postroom.flow.render import Renderer
from postroom.records import batches, bodies, messages
from postroom.records.deliveries import attribute_filter
from postroom.records.rows import Unreadable
from tests.acting import acting
from tests.scenario.town import LIST, SITE, Town

ADA = {"name": "Ada", "city": "Oslo", "shoe size": "39", "notes": "{{ city }}"}
HTML = '<p>{% if city == "Oslo" %}Norway{% endif %} {{ shoe size | default("?") }}</p>'


async def test_a_delivery_has_what_subject_body_and_conditions_use(town: Town) -> None:
    await town.found_list()
    await town.join("ada", attributes=ADA)
    act = acting(town.storage, town.clock.now())
    draft = Draft(list_name=LIST, subject="For {{ name }}", html=HTML, due_at=town.clock.now())
    ref = (await compose.compose(act, draft)).ref
    await town.fan_out()
    message = await messages.read(town.storage.tables, ref)
    assert message.merge_fields == MergeFields(("city", "name", "shoe size"))
    deliveries = await batches.load_deliveries(town.storage.tables, ref, 0)
    assert deliveries[0].attributes == {key: ADA[key] for key in message.merge_fields.names}
    compiled = await Renderer(town.storage, SITE, town.clock).compiled(message)
    [mail] = compiled.mails_for(0, [deliveries[0]])
    source = mail.spliced(eight_bit=True).source
    assert b"Subject: For Ada" in source
    assert b"<p>Norway 39</p>" in source


async def test_an_edit_changes_what_deliveries_have(town: Town) -> None:
    await town.found_list()
    act = acting(town.storage, town.clock.now())
    ref = (await compose.compose(act, Draft(list_name=LIST, subject="News", html=HTML))).ref
    found = await messages.read_with_etag(town.storage.tables, ref)
    revision = Revision(subject="{{ name }}", html="<p>{{ email }}</p>")
    edited = await compose.edit(town.storage, ref, revision, found.etag)
    assert edited.value.merge_fields == MergeFields(("name",))


async def test_a_repeated_call_has_the_fields_of_the_bodies_that_it_stores(town: Town) -> None:
    """Its template was changed between the tries."""
    await town.found_list()
    now = town.clock.now()
    origin = Origin("a call", ref_of_call("a call", now))
    draft = Draft(list_name=LIST, subject="News", html="<p>{{ name }}</p>")
    await compose.compose(acting(town.storage, now), draft, origin)
    changed = msgspec.structs.replace(draft, html="<p>{{ city }}</p>", due_at=now)
    ref = (await compose.compose(acting(town.storage, now), changed, origin)).ref
    message = await messages.read(town.storage.tables, ref)
    assert message.merge_fields == MergeFields(("city",))
    assert await bodies.load(town.storage.blobs, message) == (changed.html, None)


def test_names_that_are_too_long_to_keep_keep_everything() -> None:
    whole = '{"name":"Ada","city":"Oslo"}'
    assert attribute_filter(None)(whole) == whole


@pytest.mark.parametrize(
    ("names", "reduced"),
    [((), ""), (("name",), '{"name":"Zoë \\"Z\\""}'), (("n o-t.e", "other"), '{"n o-t.e":"x"}')],
)
def test_attributes_are_reduced_to_those_in_use(names: tuple[str, ...], reduced: str) -> None:
    stored = '{"name":"Zoë \\"Z\\"","empty":"","n o-t.e":"x","rest":"y"}'
    assert attribute_filter(MergeFields(names))(stored) == reduced


@pytest.mark.parametrize("damaged", ['{"name":1}', "[]", '{"name":"x"', "", "null"])
def test_damaged_attributes_are_noticed_before_they_are_mailed(damaged: str) -> None:
    with pytest.raises(Unreadable):
        attribute_filter(MergeFields(("name",)))(damaged)
