"""How long an answer may take, and how much may be sent: by what is asked for."""

from __future__ import annotations

import pytest

from postroom.importing import jobs
from postroom.web.security import limits_for
from tests.clock import START


@pytest.mark.parametrize("page", ["report/export", "live"])
def test_a_stream_of_an_import_has_no_time_limit(page: str) -> None:
    assert limits_for(f"/admin/imports/{jobs.new_id(START)}/{page}").answer_s is None
