"""Imports on the admin pages: looked over first, then brought in, reported row by row."""

from __future__ import annotations

import codecs
import csv
import io
import re
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from postroom.domain.address import parse_address
from postroom.domain.job_status import JobStatus
from postroom.domain.subscriber import InactiveReason
from postroom.domain.user import Role
from postroom.flow import subscribe
from postroom.importing.csv_people import CsvSample, csv_sample
from postroom.records import counts
from postroom.web import security
from postroom.web.admin import imports
from tests.acting import acting
from tests.web.importing import (
    CHOICE,
    GOOD,
    at_work,
    brought_in,
    gone_person,
    job_of,
    kinds_kept,
    looked_over,
    settled,
    stored,
    upload,
    uploaded,
)
from tests.web.office import LIST, NOW
from tests.web.signed_in import OWN_PAGE, Worker


@pytest_asyncio.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Worker]:
    async with at_work(tmp_path, Role.EDITOR) as worker:
        yield worker


# --- Uploading --------------------------------------------------------------------------------


async def test_a_file_is_uploaded_and_its_columns_are_shown(editor: Worker) -> None:
    path = await uploaded(editor, "E-Mail;Vorname;Größe\nada@contoso.edu;Ada;1,70\n")
    page = (await editor.get(f"{path}/columns")).text
    for shown in ("UTF-8", "semicolon", "E-Mail", "Vorname", "1,70"):
        assert shown in page
    for name in ("vorname", "grosse"):
        assert f'value="{name}"' in page
    assert 'value="0" aria-label="E-Mail contains the email addresses" checked' in page


async def test_an_address_column_is_recognised_by_what_is_in_it(editor: Worker) -> None:
    path = await uploaded(editor, "Name,Kontakt\nAda,ada@contoso.edu\n")
    page = (await editor.get(f"{path}/columns")).text
    assert 'value="1" aria-label="Kontakt contains the email addresses" checked' in page


@pytest.mark.parametrize(
    ("content", "name", "sentence"),
    [
        (b"PK\x03\x04rest", "people.xlsx", "people.xlsx is a spreadsheet file. Open it"),
        (b"\x00\x01\x02", "people.bin", "is not a text file"),
        (b"", "people.csv", "The file is empty"),
        (b"\n\n \n", "people.csv", "The file is empty"),
    ],
)
async def test_a_file_that_is_no_csv_is_refused_and_not_kept(
    editor: Worker, content: bytes, name: str, sentence: str
) -> None:
    answer = await upload(editor, content, name)
    assert answer.status_code == 422
    assert sentence in answer.text
    assert 'id="file-mistake"' in answer.text
    assert f'value="{LIST}" selected' in answer.text
    assert await kinds_kept(editor) == []


async def test_a_file_that_begins_with_empty_rows_alone_is_refused(editor: Worker) -> None:
    answer = await upload(editor, b"\n" * 100_000 + b"email\nada@contoso.edu\n")
    assert answer.status_code == 422
    assert "The file begins with too many empty" in answer.text
    assert await kinds_kept(editor) == []


async def test_a_file_is_looked_at_beside_the_event_loop(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def noted(lines: Iterator[str], rows: int) -> CsvSample:
        threads.append(threading.get_ident())
        return csv_sample(lines, rows)

    monkeypatch.setattr(imports, "csv_sample", noted)
    path, _ = await looked_over(editor, GOOD)
    await editor.get(f"{path}/columns")
    assert len(threads) == 3  # uploaded, chosen, shown again
    assert threading.get_ident() not in threads


async def test_an_upload_without_a_file_or_for_no_list_is_refused(editor: Worker) -> None:
    assert "Choose a file" in (await upload(editor, b"", "")).text
    assert "There is no such list" in (await upload(editor, GOOD, list_name="nowhere")).text
    assert "cannot be a list name" in (await upload(editor, GOOD, list_name="no blanks")).text
    plain = await editor.post("/admin/imports/upload", list=LIST)
    assert "contains no file" in plain.text
    assert await kinds_kept(editor) == []


async def test_a_damaged_or_endless_form_is_refused(editor: Worker) -> None:
    kind = {"content-type": "multipart/form-data; boundary=x"}
    for body in (
        b"no boundary at all",
        b'--x\r\nContent-Disposition: form-data; name="list"\r\n\r\n' + b"y" * 5000,
        b"".join(
            b'--x\r\nContent-Disposition: form-data; name="f%d"\r\n\r\nv\r\n' % n for n in range(30)
        ),
    ):
        answer = await editor.browser.post(
            "/admin/imports/upload", content=body, headers=OWN_PAGE | kind
        )
        assert answer.status_code == 422
        assert "damaged" in answer.text
    assert await kinds_kept(editor) == []


async def test_a_file_that_is_too_large_is_refused_with_a_sentence(
    editor: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = security.RequestLimits(body_bytes=10_000, answer_s=None)
    monkeypatch.setattr(security, "REQUEST_LIMITS", [(re.compile("/admin/imports/upload"), room)])
    answer = await upload(editor, GOOD + "x" * 20_000)
    assert answer.status_code == 422
    assert "larger than 1 GiB" in answer.text
    assert await kinds_kept(editor) == []


async def test_a_name_that_a_browser_sends_stays_a_name(editor: Worker) -> None:
    path = await uploaded(editor, GOOD, "C:\\Users\\ada\\..\\people.csv")
    job = await job_of(editor, path)
    assert job.file_name == "people.csv"
    assert await editor.office.storage.blobs.get(f"imports/{job.id}/file/00000") == GOOD.encode()


# --- Choosing the columns ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("email", "7", "Choose the column with the email addresses"),
        ("email", "", "Choose the column with the email addresses"),
        ("name-1", "First name", "cannot be an attribute"),
        ("name-1", "city", "Two columns are called city"),
        ("name-1", "since", "Choose another name"),
        ("basis", " ", "Say why you are allowed to email these people"),
        ("basis", "x" * 400, "Use at most"),
        ("purpose", "sell", "Choose what to do with these people"),
    ],
)
async def test_a_wrong_choice_gets_a_sentence_and_loses_nothing(
    editor: Worker, field: str, value: str, sentence: str
) -> None:
    path = await uploaded(editor, GOOD)
    answer = await editor.post(f"{path}/columns", **CHOICE | {field: value})
    assert answer.status_code == 422
    assert sentence in answer.text
    kept = CHOICE | {field: value}
    for name in ("name-1", "name-2", "basis"):
        assert kept[name].strip() in answer.text
    assert (await job_of(editor, path)).status is JobStatus.WAITING


async def test_a_dry_run_counts_and_adds_nobody(editor: Worker) -> None:
    await gone_person(editor, "eve@contoso.edu")
    rows = "eve@contoso.edu,Eve,\nnobody,,\nada@contoso.edu,again,\n"
    path, job = await looked_over(editor, GOOD + rows)
    assert job.is_rehearsed
    assert (job.added, job.duplicates, job.unsubscribed, job.bad) == (2, 1, 1, 1)
    assert await stored(editor, "ada@contoso.edu") is None
    page = (await editor.get(path)).text
    assert "Add 2 people to contoso1" in page
    assert "would be added" in page
    assert "The address has no @" in page


async def test_the_columns_can_be_chosen_again(editor: Worker) -> None:
    path, job = await looked_over(editor, "name,mail\nada@contoso.edu,x\n", email="1")
    assert job.bad == 1
    page = (await editor.get(f"{path}/columns")).text
    assert 'value="1" aria-label="mail contains the email addresses" checked' in page
    assert CHOICE["basis"] in page
    answer = await editor.post(f"{path}/columns", **CHOICE | {"email": "0", "name-1": "note"})
    assert answer.status_code == 303
    job = await settled(editor, path)
    assert (job.added, job.bad) == (1, 0)


async def test_a_file_without_headings_loses_nobody(editor: Worker) -> None:
    path = await uploaded(editor, "ada@contoso.edu,Ada\nbob@contoso.edu,Bob\n")
    assert 'name="header" value="yes">' in (await editor.get(f"{path}/columns")).text
    choice = {"email": "0", "name-1": "first_name", "purpose": "keep", "basis": "asked"}
    await editor.post(f"{path}/columns", **choice)
    job = await settled(editor, path)
    assert (job.added, job.bad) == (2, 0)


# --- Bringing in ------------------------------------------------------------------------------


async def test_people_come_in_with_attributes_and_the_declared_basis(editor: Worker) -> None:
    job = await brought_in(editor, GOOD)
    assert job.is_finished
    assert (job.added, job.rows) == (2, 2)
    ada = await stored(editor, "ada@contoso.edu")
    assert ada
    assert (ada.verified, ada.attributes) == (True, {"first_name": "Ada", "city": "Köln"})
    assert ada.import_source
    assert (ada.import_source.name, ada.import_source.basis) == ("people.csv", CHOICE["basis"])
    people = await counts.read(editor.office.storage.tables, LIST)
    assert (people.verified, people.unverified) == (2, 0)
    assert await kinds_kept(editor) == []  # the upload is not kept any longer than needed
    page = (await editor.get(f"/admin/imports/{job.id}")).text
    assert "Done: 2 rows" in page


async def test_what_is_left_out_is_not_kept(editor: Worker) -> None:
    await brought_in(editor, GOOD, **{"name-1": "", "name-2": "town", "purpose": "keep"})
    ada = await stored(editor, "ada@contoso.edu")
    assert ada
    assert (ada.verified, ada.attributes) == (False, {"town": "Köln"})


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (GOOD.encode(), "UTF-8"),
        (codecs.BOM_UTF8 + GOOD.encode(), "UTF-8"),
        (GOOD.encode("cp1252"), "UTF-8 with 1 line in Windows-1252"),
        (GOOD.encode("utf-16"), "UTF-16"),
        (GOOD.replace(",", "\t").encode(), "UTF-8"),
        (GOOD.replace("\n", "\r").encode(), "UTF-8"),
    ],
)
async def test_encodings_and_delimiters_are_found_out(
    editor: Worker, content: bytes, encoding: str
) -> None:
    job = await brought_in(editor, content)
    assert (job.encoding, job.added) == (encoding, 2)
    ada = await stored(editor, "ada@contoso.edu")
    assert ada
    assert ada.attributes["city"] == "Köln"


async def test_people_who_unsubscribed_are_not_added_again_and_are_in_the_report(
    editor: Worker,
) -> None:
    await gone_person(editor, "ada@contoso.edu")
    job = await brought_in(editor, GOOD + "=nobody,,\n")
    assert (job.added, job.unsubscribed, job.bad) == (1, 1, 1)
    gone = await stored(editor, "ada@contoso.edu")
    assert gone
    assert gone.inactive_reason is InactiveReason.UNSUBSCRIBED
    answer = await editor.get(f"/admin/imports/{job.id}/report/export")
    assert "attachment" in answer.headers["content-disposition"]
    assert answer.content.startswith(codecs.BOM_UTF8)  # or it is read as Windows-1252
    text = answer.content.decode("utf-8-sig")
    report = {row[0]: row[1:] for row in csv.reader(io.StringIO(text))}
    assert report["line"] == ["value", "reason"]
    assert report["2"][0] == "ada@contoso.edu"
    assert "no longer subscribed (unsubscribed)" in report["2"][1]
    assert report["4"][0] == "'=nobody"  # a spreadsheet must not run it


async def test_our_own_export_is_imported_unchanged(editor: Worker) -> None:
    rows = "email,subscription,since\na@contoso.edu,verified,x\nb@contoso.edu,unverified,x\n"
    path = await uploaded(editor, rows + "c@contoso.edu,bounced,x\n")
    assert "people who unsubscribed are not added" in (await editor.get(f"{path}/columns")).text
    choice = {"email": "0", "header": "yes", "purpose": "confirmed", "basis": "moved"}
    await editor.post(f"{path}/columns", **choice)
    await settled(editor, path)
    await editor.post(f"{path}/start")
    job = await settled(editor, path)
    assert (job.added, job.unsubscribed) == (2, 1)
    unverified = await stored(editor, "b@contoso.edu")
    assert unverified
    assert not unverified.verified


async def test_people_to_suppress_leave_or_are_marked_before_they_ever_come(
    editor: Worker,
) -> None:
    tables = editor.office.storage.tables
    ada = parse_address("ada@contoso.edu")
    await subscribe.add(acting(tables, NOW), LIST, ada, {"city": "Köln"}, verified=True)
    await gone_person(editor, "eve@contoso.edu")
    rows = GOOD + "eve@contoso.edu,,\nnobody,,\n"
    path, job = await looked_over(editor, rows, purpose="suppress", basis="")
    assert (job.added, job.already, job.bad) == (2, 1, 1)
    there = await stored(editor, "ada@contoso.edu")
    assert there
    assert there.inactive_reason is None
    assert "Keep 2 people off contoso1" in (await editor.get(path)).text
    await editor.post(f"{path}/start")
    job = await settled(editor, path)
    assert (job.added, job.already, job.bad) == (2, 1, 1)
    for address in ("ada@contoso.edu", "bob@contoso.edu"):
        one = await stored(editor, address)
        assert one
        assert (one.inactive_reason, one.verified, one.attributes) == (
            InactiveReason.REMOVED,
            False,
            {},
        )
    eve = await stored(editor, "eve@contoso.edu")
    assert eve
    assert eve.inactive_reason is InactiveReason.UNSUBSCRIBED  # what was known of her still holds
    people = await counts.read(tables, LIST)
    assert (people.verified, people.unverified, people.inactive) == (0, 0, 3)
    again = await brought_in(editor, GOOD)
    assert (again.added, again.unsubscribed) == (0, 2)
