"""The Bicep templates: well formed, every name declared, every part wired. No account is asked.

The compiler is not to be had from a package index, so types of resources are not checked here;
docs/azure.md says so.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tree_sitter

from postroom.records.names import MAIL_QUEUE, SINGLE_MAIL_QUEUE
from postroom.supervisor import ITEMS_PER_SENDER, KILL_AFTER_S
from tests.deploy.reading import BICEP, DEPLOY, bicep_tree, nodes, words

MAIN, ROLES = DEPLOY / "azure" / "main.bicep", DEPLOY / "azure" / "roles.bicep"
PARAMETERS = DEPLOY / "azure" / "main.bicepparam"
DECLARES = ("parameter", "variable", "resource", "module")
TYPED = re.compile(r"'(Microsoft\.\w+(?:/\w+)+)@\d{4}-\d{2}-\d{2}'")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def declared(tree: tree_sitter.Node, *kinds: str) -> dict[str, tree_sitter.Node]:
    """Declarations of these kinds, by name."""
    wanted = {f"{kind}_declaration" for kind in kinds}
    return {words(node.children[1]): node for node in nodes(tree) if node.type in wanted}


def undeclared(text: str) -> list[str]:
    """Names that an expression uses and nobody declares."""
    tree = bicep_tree(text)
    loops = [node.child_by_field_name("initializer") for node in nodes(tree)]
    known = {*declared(tree, *DECLARES), *(words(each) for each in loops if each)}
    return [words(node) for node in nodes(tree) if _is_use(node) and words(node) not in known]


def _is_use(node: tree_sitter.Node) -> bool:
    parent = node.parent
    if node.type != "identifier" or parent is None:
        return False
    place = parent.children.index(node)
    if parent.type.endswith("_declaration"):
        return place > 1
    if parent.type == "object_property":
        return place > 0
    return parent.type != "call_expression"


def unused(text: str) -> list[str]:
    tree = bicep_tree(text)
    used = {words(node) for node in nodes(tree) if _is_use(node)}
    return sorted(set(declared(tree, "parameter", "variable")) - used)


def resource(path: Path, name: str) -> str:
    return words(declared(bicep_tree(read(path)), "resource")[name])


@pytest.mark.parametrize("path", BICEP, ids=lambda path: path.name)
def test_a_template_is_well_formed(path: Path) -> None:
    assert not bicep_tree(read(path)).has_error


def test_a_template_that_is_not_is_found() -> None:
    assert bicep_tree(read(MAIN).replace("kind: 'StorageV2'", "kind: 'StorageV2")).has_error


@pytest.mark.parametrize("path", BICEP, ids=lambda path: path.name)
def test_every_name_is_declared_and_used(path: Path) -> None:
    assert undeclared(read(path)) == []
    assert unused(read(path)) == []


def test_a_name_that_is_not_is_found() -> None:
    assert undeclared(read(MAIN).replace("name: redundancy", "name: redundance")) == ["redundance"]
    assert unused(read(MAIN).replace("name: redundancy", "name: 'x'")) == ["redundancy"]


def test_the_roles_are_given_what_they_ask_for() -> None:
    module = words(declared(bicep_tree(read(MAIN)), "module")["roles"])
    given = re.findall(r"^    (\w+): ", module, re.MULTILINE)
    asked = declared(bicep_tree(read(ROLES)), "parameter")
    assert sorted(given) == sorted(asked)


def test_the_parameters_are_those_of_the_template() -> None:
    asked = declared(bicep_tree(read(MAIN)), "parameter")
    needed = {name for name, node in asked.items() if "=" not in words(node)}
    given = re.findall(r"^param (\w+) = ", read(PARAMETERS), re.MULTILINE)
    assert needed <= set(given) <= set(asked)


def test_no_secret_is_written_down() -> None:
    text = read(MAIN)
    assert re.search(r"@secure\(\)\nparam transport string\n", text)
    assert "param transport = readEnvironmentVariable(" in read(PARAMETERS)
    assert "allowSharedKeyAccess: false" in resource(MAIN, "storage")


def test_everything_that_was_asked_for_is_there() -> None:
    types = {found for path in BICEP for found in TYPED.findall(read(path))}
    assert types == {
        "Microsoft.ManagedIdentity/userAssignedIdentities",
        "Microsoft.Storage/storageAccounts",
        "Microsoft.Authorization/roleAssignments",
        "Microsoft.KeyVault/vaults",
        "Microsoft.KeyVault/vaults/secrets",
        "Microsoft.ContainerRegistry/registries",
        "Microsoft.OperationalInsights/workspaces",
        "Microsoft.App/managedEnvironments",
        "Microsoft.App/containerApps",
    }


def test_the_identity_has_the_data_roles_of_all_three_services() -> None:
    found = words(declared(bicep_tree(read(MAIN)), "variable")["dataRoles"])
    assert set(re.findall(r"'([0-9a-f-]{36})'", found)) == {
        "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3",  # Storage Table Data Contributor
        "974c5e8b-45b9-4653-ba55-5f855dd0fb88",  # Storage Queue Data Contributor
        "ba92f5b4-2d11-453d-a403-e96b0029c9fe",  # Storage Blob Data Contributor
    }


def test_the_web_role_has_two_or_more_and_is_asked_how_it_is() -> None:
    web = resource(ROLES, "web")
    assert "@minValue(2)\nparam webMin int = 2" in read(MAIN)
    assert "minReplicas: webMin" in web
    probes = re.findall(r"type: '(\w+)'\s+httpGet: \{\s+path: '(/\w+)'", web)
    assert probes == [("Startup", "/healthz"), ("Liveness", "/healthz"), ("Readiness", "/readyz")]


def test_a_candidate_gets_no_traffic_until_it_is_production() -> None:
    variables = declared(bicep_tree(read(ROLES)), "variable")
    staged = words(variables["onProductionWithStaging"])
    shares = re.findall(r"--\$\{(\w+)\}'\s+label: '(\w+)'\s+weight: (\d+)", staged)
    assert shares == [("production", "production", "100"), ("candidate", "staging", "0")]
    assert "activeRevisionsMode: 'Multiple'" in resource(ROLES, "web")


@pytest.mark.parametrize("role", ["scheduler", "senders"])
def test_workers_are_those_of_production_alone(role: str) -> None:
    text = resource(ROLES, role)
    assert "image: '${image}:${production}'" in text
    assert "activeRevisionsMode: 'Single'" in text


def test_senders_follow_the_queues_by_the_rule_of_serve() -> None:
    text = resource(ROLES, "senders")
    rules = re.findall(r"queueName: '\$\{prefix\}(\w+)'\s+queueLength: '(\d+)'", text)
    assert dict(rules)[MAIL_QUEUE] == str(ITEMS_PER_SENDER)
    assert set(dict(rules)) == {MAIL_QUEUE, SINGLE_MAIL_QUEUE}
    assert text.count("queueLengthStrategy: 'all'") == text.count("type: 'azure-queue'") == 2


def test_a_role_has_longer_to_stop_than_it_takes() -> None:
    text = read(ROLES)
    grace_s = int(re.findall(r"var graceSeconds = (\d+)", text)[0])
    takes_s = int(re.findall(r"'POSTROOM_STOP_GRACE_S'\s+value: '(\d+)'", text)[0])
    assert grace_s > takes_s + KILL_AFTER_S
    assert text.count("terminationGracePeriodSeconds: graceSeconds") == 3
