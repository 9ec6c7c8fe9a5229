"""The image: not root, one for all roles, made of what is locked. It is read here, not built."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.reading import (
    DEPLOY,
    DOCKERFILE,
    ROOT,
    Instruction,
    final_stage,
    image_environment,
    instructions,
)
from tests.test_lock import locked, pins, unpinned, wanted

LOCK = "deploy/requirements.txt"
DOCKERFILES = [DOCKERFILE, DEPLOY / "azurite" / "Dockerfile"]


def last(word: str, path: Path = DOCKERFILE) -> Instruction:
    return [each for each in final_stage(path) if each.word == word][-1]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_nothing_runs_as_root(path: Path) -> None:
    user, group = last("USER", path).rest.split(":")
    assert int(user) > 0
    assert int(group) > 0


def test_the_image_is_for_every_role() -> None:
    assert last("ENTRYPOINT").words == ["postroom"]
    assert last("CMD").words == ["serve"]


def test_the_image_does_not_judge_roles_that_answer_no_http() -> None:
    assert last("HEALTHCHECK").rest == "NONE"


def test_a_stop_is_a_planned_stop() -> None:
    assert last("STOPSIGNAL").rest == "SIGTERM"


def test_what_belongs_to_the_machine_lies_in_the_volume() -> None:
    volume, environment = last("VOLUME").rest, image_environment()
    assert environment["POSTROOM_DATA"] == volume
    assert environment["POSTROOM_STORAGE"] == f"sqlite:///{volume}/postroom.db"


def test_the_volume_belongs_to_the_user_of_the_image() -> None:
    user, group = last("USER").rest.split(":")
    (made,) = [each.rest for each in final_stage(DOCKERFILE) if each.word == "RUN"]
    assert f"install -d -o {user} -g {group} -m 0700 {last('VOLUME').rest}" in made


def test_what_builds_stays_out_of_the_image() -> None:
    copied = [each.words for each in final_stage(DOCKERFILE) if each.word == "COPY"]
    assert copied == [["--from=build", "/opt/postroom", "/opt/postroom"]]


def test_every_package_is_installed_by_hash() -> None:
    runs = [each.rest for each in instructions(DOCKERFILE) if each.word == "RUN"]
    installs = [part for run in runs for part in run.split("&&") if " install -" in part]
    packages = [part for part in installs if "pip" in part]
    assert packages
    assert all("--require-hashes" in part or "--no-index" in part for part in packages)


def test_the_lock_of_the_image_holds_what_it_runs_with_and_no_other_version() -> None:
    assert unpinned(locked(LOCK)) == []
    assert set(wanted(extras=("azure",))) <= set(pins(locked(LOCK))), "run ./dev lock"
    assert pins(locked(LOCK)).items() <= pins(locked("requirements-dev.txt")).items()


def test_only_what_the_dockerfile_copies_can_get_into_the_image() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    copied = [
        word
        for each in instructions(DOCKERFILE)
        if each.word == "COPY" and "--from=build" not in each.words
        for word in each.words[:-1]
    ]
    assert rules[0] == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == set(copied)
    assert all((ROOT / name).exists() for name in copied)


def test_a_continued_line_is_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text('FROM a AS b\nFROM c\n# no\nENV A=1 \\\n    B=2\nCMD ["d e"]\n', "utf-8")
    assert [(each.word, each.words) for each in final_stage(path)] == [
        ("FROM", ["c"]),
        ("ENV", ["A=1", "B=2"]),
        ("CMD", ["d e"]),
    ]
