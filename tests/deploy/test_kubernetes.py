"""The manifests: as the API says, and with what each role needs. No cluster is asked."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
import yaml

from postroom.domain.scaling import ITEMS_PER_SENDER
from postroom.records.names import MAIL_QUEUE, SINGLE_MAIL_QUEUE
from tests.deploy.reading import (
    DEPLOY,
    MANIFESTS,
    final_stage,
    image_environment,
    named,
    objects,
    schema,
)
from tests.deploy.reading import DOCKERFILE as IMAGE

ROLES = ["web", "scheduler", "sender"]
PODS = [*ROLES, "drain"]
KUSTOMIZATION = DEPLOY / "kubernetes" / "kustomization.yaml"
DRAIN = DEPLOY / "kubernetes-drain" / "kustomization.yaml"

# The fields of KEDA's custom resources (keda.sh/v1alpha1) that we use; it has no JSON schema.
KEDA_FIELDS = {
    "ScaledObject": {
        "scaleTargetRef",
        "minReplicaCount",
        "maxReplicaCount",
        "pollingInterval",
        "cooldownPeriod",
        "advanced",
        "fallback",
        "triggers",
    },
    "TriggerAuthentication": {"podIdentity"},
}
AZURE_QUEUE_FIELDS = {"accountName", "queueName", "queueLength", "queueLengthStrategy"}


def mistakes(document: Any) -> list[str]:
    """What the API of Kubernetes would refuse in one object."""
    api = schema("kubernetes-1.32.json")
    kind = api["kinds"].get(f"{document.get('apiVersion')} {document.get('kind')}")
    if kind is None:
        return [f"not a kind we know: {document.get('kind')}"]
    whole = {"$ref": f"#/$defs/{kind}", "$defs": api["$defs"]}
    validator = jsonschema_rs.validator_for(whole)
    return [error.message for error in validator.iter_errors(document)]


def is_kedas(document: Any) -> bool:
    return bool(document["apiVersion"] == "keda.sh/v1alpha1")


def pod(role: str) -> Any:
    if role == "drain":
        job = named("CronJob", "postroom-drain")["spec"]["jobTemplate"]
        return job["spec"]["template"]["spec"]
    return named("Deployment", f"postroom-{role}")["spec"]["template"]["spec"]


def container(role: str) -> Any:
    (found,) = pod(role)["containers"]
    return found


def test_every_object_is_as_the_api_says() -> None:
    ours = [each for each in objects() if not is_kedas(each)]
    found = {each["metadata"]["name"]: mistakes(each) for each in ours}
    assert ours
    assert not any(found.values()), found


def test_an_object_that_is_not_is_found() -> None:
    web = named("Deployment", "postroom-web")
    web["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    assert mistakes(web)
    assert mistakes({"apiVersion": "v1", "kind": "Pood"}) == ["not a kind we know: Pood"]
    assert mistakes({"apiVersion": "v1", "kind": "Service", "spec": {"ports": "http"}})


def test_every_file_is_applied() -> None:
    listed = yaml.safe_load(KUSTOMIZATION.read_text(encoding="utf-8"))
    files = {path.name for path in KUSTOMIZATION.parent.glob("*.yaml")} - {KUSTOMIZATION.name}
    assert set(listed["resources"]) == files
    assert [image["name"] for image in listed["images"]] == [container("web")["image"]]


@pytest.mark.parametrize("role", ROLES)
def test_a_deployment_selects_its_own_pods(role: str) -> None:
    spec = named("Deployment", f"postroom-{role}")["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert labels["app.kubernetes.io/component"] == role


def test_the_service_and_the_budgets_select_pods_that_exist() -> None:
    labels = [
        each["spec"]["template"]["metadata"]["labels"].items() for each in objects("Deployment")
    ]
    selectors = [named("Service", "postroom")["spec"]["selector"]]
    selectors += [
        each["spec"]["selector"]["matchLabels"] for each in objects("PodDisruptionBudget")
    ]
    assert len(selectors) == 3
    for selector in selectors:
        assert sum(selector.items() <= pods for pods in labels) == 1


@pytest.mark.parametrize("role", PODS)
def test_a_pod_is_not_told_of_services_in_variables_that_look_like_settings(role: str) -> None:
    assert pod(role)["enableServiceLinks"] is False


@pytest.mark.parametrize("role", PODS)
def test_a_pod_has_longer_to_stop_than_it_takes(role: str) -> None:
    before = container(role).get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
    waits_s = float(before[1]) if before else 0.0
    grace_s = float(named("ConfigMap", "postroom")["data"]["POSTROOM_STOP_GRACE_S"])
    assert pod(role)["terminationGracePeriodSeconds"] >= waits_s + grace_s + 10


@pytest.mark.parametrize("role", PODS)
def test_a_pod_runs_as_the_user_of_the_image_and_may_do_nothing_else(role: str) -> None:
    (user,) = [each.rest for each in final_stage(IMAGE) if each.word == "USER"]
    outside, inside = pod(role)["securityContext"], container(role)["securityContext"]
    assert f"{outside['runAsUser']}:{outside['runAsGroup']}" == user
    assert outside["runAsNonRoot"] is True
    assert outside["fsGroup"] == outside["runAsGroup"]
    assert inside["readOnlyRootFilesystem"] is True
    assert inside["allowPrivilegeEscalation"] is False
    assert inside["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("role", PODS)
def test_the_journal_outlives_the_container(role: str) -> None:
    mounts = {each["mountPath"]: each["name"] for each in container(role)["volumeMounts"]}
    volumes = {each["name"] for each in pod(role)["volumes"]}
    assert mounts[image_environment()["POSTROOM_DATA"]] == "data"
    assert set(mounts.values()) == volumes


@pytest.mark.parametrize("role", PODS)
def test_secrets_are_named_and_not_written_down(role: str) -> None:
    assert objects("Secret") == []
    (secret,) = [each["secret"] for each in pod(role)["volumes"] if "secret" in each]
    (mounted,) = [
        each["mountPath"] for each in container(role)["volumeMounts"] if each["name"] == "secrets"
    ]
    where = named("ConfigMap", "postroom")["data"]["POSTROOM_TRANSPORT_FILE"]
    assert secret == {"secretName": "postroom"}
    assert where == f"{mounted}/transport"


def test_a_rolling_restart_of_the_web_role_takes_nobody_away_before_another_is_ready() -> None:
    spec = named("Deployment", "postroom-web")["spec"]
    assert spec["replicas"] >= 2
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert container("web")["lifecycle"]["preStop"]


def test_storage_out_of_reach_restarts_nobody() -> None:
    web = container("web")
    assert web["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert web["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert web["ports"] == [{"name": "http", "containerPort": 8025}]


def test_workers_are_not_asked_over_http() -> None:
    for role in ("scheduler", "sender"):
        assert not [name for name in container(role) if name.endswith("Probe")]


# --- The job instead of scheduler and senders ---------------------------------------------------


def test_the_job_replaces_the_workers_and_their_scaler() -> None:
    kept = yaml.safe_load(DRAIN.read_text(encoding="utf-8"))
    assert kept["resources"] == ["../kubernetes", "drain.yaml"]
    patches = [yaml.safe_load(each["patch"]) for each in kept["patches"]]
    assert {each.pop("$patch") for each in patches} == {"delete"}
    gone = {(each["kind"], each["metadata"]["name"]) for each in patches}
    workers = {"scheduler.yaml", "sender.yaml", "scaler.yaml"}
    files = [path for path in MANIFESTS if path.name in workers]
    theirs = [each for path in files for each in yaml.safe_load_all(path.read_text("utf-8"))]
    assert gone == {(each["kind"], each["metadata"]["name"]) for each in theirs}
    versions = {each["apiVersion"] for each in patches}
    assert versions == {each["apiVersion"] for each in theirs}


def test_a_job_is_not_started_beside_another() -> None:
    assert named("CronJob", "postroom-drain")["spec"]["concurrencyPolicy"] == "Forbid"


# --- KEDA -------------------------------------------------------------------------------------


def test_the_scaler_has_the_fields_of_its_kind() -> None:
    kedas = [each for each in objects() if is_kedas(each)]
    assert {each["kind"] for each in kedas} == set(KEDA_FIELDS)
    for each in kedas:
        assert set(each["spec"]) <= KEDA_FIELDS[each["kind"]]


def test_senders_follow_the_queues_by_the_rule_of_serve() -> None:
    spec = named("ScaledObject", "postroom-sender")["spec"]
    queues = {each["metadata"]["queueName"]: each["metadata"] for each in spec["triggers"]}
    assert set(queues) == {MAIL_QUEUE, SINGLE_MAIL_QUEUE}
    assert queues[MAIL_QUEUE]["queueLength"] == str(ITEMS_PER_SENDER)
    for each in spec["triggers"]:
        assert each["type"] == "azure-queue"
        assert set(each["metadata"]) == AZURE_QUEUE_FIELDS
        assert all(isinstance(value, str) for value in each["metadata"].values())
        assert each["metadata"]["queueLengthStrategy"] == "all"  # claimed ones count


def test_the_scaler_has_its_target_alone() -> None:
    spec = named("ScaledObject", "postroom-sender")["spec"]
    target = named("Deployment", spec["scaleTargetRef"]["name"])
    assert "replicas" not in target["spec"]  # applying it again would undo the scaler
    assert spec["minReplicaCount"] == 0 < spec["maxReplicaCount"]
    assert spec["fallback"]["replicas"] >= 1  # blind, it must not stop everybody


def test_the_scaler_is_who_the_roles_are() -> None:
    spec = named("ScaledObject", "postroom-sender")["spec"]
    names = {each["authenticationRef"]["name"] for each in spec["triggers"]}
    (identity,) = [named("TriggerAuthentication", name)["spec"]["podIdentity"] for name in names]
    account = named("ServiceAccount", "postroom")["metadata"]["annotations"]
    assert identity["provider"] == "azure-workload"
    assert identity["identityId"] == account["azure.workload.identity/client-id"]
    for role in ROLES:
        labels = named("Deployment", f"postroom-{role}")["spec"]["template"]["metadata"]["labels"]
        assert labels["azure.workload.identity/use"] == "true"
        assert pod(role)["serviceAccountName"] == "postroom"
