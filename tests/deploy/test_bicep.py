"""The Bicep templates: well formed, of the types Azure publishes, every part wired.

The compiler is in no package index; bicep.py checks what it would check, as far as we use it.
No account is asked.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tree_sitter

from postroom import settings
from postroom.domain.scaling import ITEMS_PER_SENDER
from postroom.records.names import MAIL_QUEUE, SINGLE_MAIL_QUEUE
from postroom.supervisor import KILL_AFTER_S
from tests.deploy.bicep import Template
from tests.deploy.reading import BICEP, DEPLOY, bicep_tree, nodes, schema, words

MAIN, ROLES = DEPLOY / "azure" / "main.bicep", DEPLOY / "azure" / "roles.bicep"
NETWORK, SITE = DEPLOY / "azure" / "network.bicep", DEPLOY / "azure" / "site.bicep"
PARAMETERS = DEPLOY / "azure" / "main.bicepparam"
WORK = ("scheduler", "senders", "job")
TYPED = re.compile(r"'(Microsoft\.\w+(?:/\w+)+)@\d{4}-\d{2}-\d{2}'")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def declared(tree: tree_sitter.Node, *kinds: str) -> dict[str, tree_sitter.Node]:
    """Declarations of these kinds, by name."""
    wanted = {f"{kind}_declaration" for kind in kinds}
    return {words(node.children[1]): node for node in nodes(tree) if node.type in wanted}


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
def test_every_value_is_of_the_type_that_azure_publishes(path: Path) -> None:
    assert Template(path, schema("azure-types.json")).check() == []
    assert unused(read(path)) == []


@pytest.mark.parametrize(
    ("file", "right", "wrong", "mistake"),
    [
        ("main", "name: redundancy", "name: redundance", "redundance is not declared"),
        ("main", "allowSharedKeyAccess", "allowSharedKey", "properties has no allowSharedKey"),
        ("main", "'TLS1_2'", "'TLS12'", "minimumTlsVersion is 'TLS12', not TLS1_0"),
        ("main", "primaryEndpoints.table", "primaryEndpoints.t", "Endpoints has no t"),
        ("main", "webMax: webMax", "webMax: name", "roles.webMax is some string, not int"),
        ("main", "    webMax: webMax\n", "", "roles is not given webMax"),
        ("main", "webMax: webMax", "webMost: webMax", "roles has no parameter webMost"),
        ("main", "outputs.appsSubnetId", "outputs.subnet", "subnet is not an output"),
        ("main", "toLower(", "lower(", "lower is a function that this checker does not know"),
        ("main", "registries@2025-04-01' existing", "registries@2025-04-01'", "registry lacks"),
        ("roles", "replicaTimeout: 21600", "replicaTimeout: '6h'", "replicaTimeout is '6h', not"),
        ("roles", "triggerType: 'Schedule'\n", "", "configuration lacks triggerType"),
        ("roles", "containerApps@2025-01-01", "containerApps@1", "has an unknown type"),
        ("network", "each.target", "each.targets", "targets is asked of"),
        ("network", "groupIds: [each.part]", "groupIds: each.part", "is 'table', not string[]"),
        ("network", "serviceName: 'Microsoft.App/environments'", "serviceName: []", "is a list"),
        ("site", "ftpsState: 'Disabled'", "ftpsState: false", "ftpsState is False, not"),
        ("site", "serverFarmId: plan.id", "serverFarmId: plan", "serverFarmId is Part("),
        ("site", "httpsOnly: true", "state: 'Running'", "cannot be given state"),
        ("domain", "own.id", "own.properties.x", "CertificateProperties has no x"),
    ],
)
def test_a_value_that_is_not_is_found(file: str, right: str, wrong: str, mistake: str) -> None:
    path = DEPLOY / "azure" / f"{file}.bicep"
    assert right in read(path)
    changed = Template(path, schema("azure-types.json"), read(path).replace(right, wrong))
    assert mistake in "\n".join(changed.check())


def test_a_name_that_is_not_used_is_found() -> None:
    assert unused(read(MAIN).replace("name: redundancy", "name: 'x'")) == ["redundancy"]


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
        "Microsoft.App/managedEnvironments/managedCertificates",
        "Microsoft.App/managedEnvironments/certificates",
        "Microsoft.App/containerApps",
        "Microsoft.App/jobs",
        "Microsoft.Network/virtualNetworks",
        "Microsoft.Network/privateEndpoints",
        "Microsoft.Network/privateEndpoints/privateDnsZoneGroups",
        "Microsoft.Network/privateDnsZones",
        "Microsoft.Network/privateDnsZones/virtualNetworkLinks",
        "Microsoft.Web/serverfarms",
        "Microsoft.Web/sites",
        "Microsoft.Web/sites/slots",
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


def test_staging_has_its_own_storage_and_mails_nobody() -> None:
    staging = words(declared(bicep_tree(read(MAIN)), "module")["staging"])
    assert "= if (candidate != production) {" in staging
    assert "var stagingPrefix = 'staging'" in read(MAIN)
    assert settings.load({"POSTROOM_AZURE_PREFIX": "staging"}, DEPLOY / "none.toml").azure_prefix
    for line in (
        "prefix: stagingPrefix",
        "transportSecretUrl: stagingTransportSecret.",
        "production: candidate",
    ):
        assert line in staging
    assert "param stagingTransport string = 'outbox:'" in read(MAIN)


def test_what_belongs_to_a_slot_stays_when_slots_are_swapped() -> None:
    variables = declared(bicep_tree(read(SITE)), "variable")
    production, staging, secret = [
        re.findall(r"name: '(\w+)'", words(variables[f"{each}Settings"]))
        for each in ("production", "staging", "sendgrid")
    ]
    (sticky,) = re.findall(r"appSettingNames: \[(.+)\]", read(SITE))
    assert production == staging
    assert [*production, *secret] == re.findall(r"'(\w+)'", sticky)


def test_storage_and_vault_have_no_public_address_unless_asked_for() -> None:
    assert "param isolated bool = true" in read(MAIN)
    for each in ("storage", "vault"):
        hidden = "publicNetworkAccess: isolated ? 'Disabled' : 'Enabled'"
        assert hidden in resource(MAIN, each)
    endpoints = words(declared(bicep_tree(read(NETWORK)), "variable")["endpoints"])
    assert re.findall(r"part: '(\w+)'", endpoints) == ["table", "queue", "blob", "vault"]
    assert "infrastructureSubnetId: network.outputs.appsSubnetId" in resource(MAIN, "containerApps")


def test_senders_can_go_down_to_none() -> None:
    assert "@minValue(0)\nparam sendersMin int" in read(MAIN)
    assert "minReplicas: sendersMin" in resource(ROLES, "senders")


def test_the_job_does_the_work_of_both_and_of_production_alone() -> None:
    job = resource(ROLES, "job")
    assert "args: ['drain']" in job
    assert "image: '${image}:${production}'" in job
    conditions = [re.findall(r"= if \((work == '\w+')\)", resource(ROLES, each)) for each in WORK]
    assert conditions == [["work == 'roles'"], ["work == 'roles'"], ["work == 'job'"]]


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
