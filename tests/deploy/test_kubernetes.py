"""The manifests: what Kubernetes' schemas say, what the Dask operator asks for, and what we promise of every pod."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.helpers.command_lines import manifests

KUBERNETES = "1.34"
FILES = ("network-policy.yaml", "score-cronjob.yaml", "storage.yaml", "train-job.yaml")

POD = {"type": "object", "required": ["containers"]}
DASK_JOB = {
    # the operator's custom resource (dask-kubernetes 2026.3) but for pods and services, which have schemas of their own
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "kubernetes.dask.org/v1"},
        "kind": {"const": "DaskJob"},
        "spec": {
            "type": "object",
            "required": ["cluster", "job"],
            "additionalProperties": False,
            "properties": {
                "job": {
                    "type": "object",
                    "required": ["spec"],
                    "additionalProperties": False,
                    "properties": {"metadata": {"type": "object"}, "spec": POD},
                },
                "cluster": {
                    "type": "object",
                    "required": ["spec"],
                    "additionalProperties": False,
                    "properties": {
                        "metadata": {"type": "object"},
                        "spec": {
                            "type": "object",
                            "required": ["worker", "scheduler"],
                            "additionalProperties": False,
                            "properties": {
                                "idleTimeout": {"type": "integer"},
                                "worker": {
                                    "type": "object",
                                    "required": ["replicas", "spec"],
                                    "additionalProperties": False,
                                    "properties": {
                                        "metadata": {"type": "object"},
                                        "replicas": {"type": "integer", "minimum": 0},
                                        "spec": POD,
                                    },
                                },
                                "scheduler": {
                                    "type": "object",
                                    "required": ["spec", "service"],
                                    "additionalProperties": False,
                                    "properties": {
                                        "metadata": {"type": "object"},
                                        "spec": POD,
                                        "service": {"type": "object", "required": ["ports", "selector"]},
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every pod's specification, by its place."""
    (cron,) = manifests("kubernetes/score-cronjob.yaml")
    yield "score", cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (job,) = manifests("kubernetes/train-job.yaml")
    yield "train", job["spec"]["job"]["spec"]
    cluster = job["spec"]["cluster"]["spec"]
    yield "scheduler", cluster["scheduler"]["spec"]
    yield "worker", cluster["worker"]["spec"]


PODS = dict(pods())


def check(kind: str, **fields: Any) -> None:
    """Hold a document to the schema of Kubernetes, which knows no other fields."""
    api = fields.pop("apiVersion", "v1")
    document = {"apiVersion": api, "kind": kind, "metadata": {"name": "checked"}, **fields}
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_every_manifest_is_checked(deploy: Path) -> None:
    assert tuple(sorted(path.name for path in (deploy / "kubernetes").glob("*.yaml"))) == FILES


@pytest.mark.parametrize("name", [name for name in FILES if name != "train-job.yaml"])
def test_a_manifest_is_what_kubernetes_takes(name: str) -> None:
    for document in manifests(f"kubernetes/{name}"):
        check(**document)


def test_the_job_is_what_the_operator_takes() -> None:
    (job,) = manifests("kubernetes/train-job.yaml")
    jsonschema.validate(job, DASK_JOB)
    for name in ("train", "scheduler", "worker"):
        check("Pod", spec=PODS[name])
    service = job["spec"]["cluster"]["spec"]["scheduler"]["service"]
    check("Service", spec=service)
    # names that the operator gives and looks for
    cluster = job["metadata"]["name"]
    assert service["selector"] == {"dask.org/cluster-name": cluster, "dask.org/component": "scheduler"}
    assert [port["name"] for port in service["ports"]] == ["tcp-comm", "http-dashboard"]
    named = {port["name"] for port in PODS["scheduler"]["containers"][0]["ports"]}
    assert {port["targetPort"] for port in service["ports"]} == named
    address = f"tls://{cluster}-scheduler:8786"
    assert address in PODS["worker"]["containers"][0]["args"]
    assert f"--scheduler={address}" in PODS["train"]["containers"][0]["args"]
    (policy,) = manifests("kubernetes/network-policy.yaml")
    assert policy["spec"]["podSelector"]["matchLabels"] == {"dask.org/cluster-name": cluster}


def test_the_schemas_find_what_is_wrong() -> None:
    (cron,) = manifests("kubernetes/score-cronjob.yaml")
    cron["spec"]["concurrencyPolcy"] = cron["spec"].pop("concurrencyPolicy")
    with pytest.raises(kubernetes_validate.ValidationError, match="concurrencyPolcy"):
        check(**cron)
    (job,) = manifests("kubernetes/train-job.yaml")
    del job["spec"]["cluster"]["spec"]["worker"]["replicas"]
    with pytest.raises(jsonschema.ValidationError, match="replicas"):
        jsonschema.validate(job, DASK_JOB)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_has_no_more_rights_than_it_needs(name: str) -> None:
    pod = PODS[name]
    user = pod["securityContext"]
    assert user["runAsNonRoot"]
    assert user["runAsUser"] == 10001
    assert user["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]
    # on the node's disk: what is spilled into memory counts against the limit
    assert [volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume] == [{}]
    (container,) = pod["containers"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    secrets = [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
    role = {"train": "client"}.get(name, name)
    assert secrets == ([] if name == "score" else [f"dslda-tls-{role}"])


def test_kubernetes_retries_what_may_help_and_nothing_else() -> None:
    (cron,) = manifests("kubernetes/score-cronjob.yaml")
    job = cron["spec"]["jobTemplate"]["spec"]
    (rule,) = (rule for rule in job["podFailurePolicy"]["rules"] if rule["action"] == "FailJob")
    container = PODS["score"]["containers"][0]["name"]
    assert rule["onExitCodes"] == {"containerName": container, "operator": "In", "values": [2]}
    assert job["backoffLimit"] > 0
    assert cron["spec"]["concurrencyPolicy"] == "Forbid"
    assert PODS["score"]["restartPolicy"] == PODS["train"]["restartPolicy"] == "Never"


def test_the_page_makes_what_the_pods_mount(deploy: Path) -> None:
    page = (deploy / "kubernetes" / "README.md").read_text(encoding="utf-8")
    (claim,) = manifests("kubernetes/storage.yaml")
    for pod in PODS.values():
        for volume in pod["volumes"]:
            if "configMap" in volume:
                assert f"create configmap {volume['configMap']['name']} " in page
            if "secret" in volume:
                stem, _, role = volume["secret"]["secretName"].rpartition("-")
                assert f"create secret generic {stem}-$role" in page
                assert f" {role}" in page.partition("for role in")[2].partition(";")[0]
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    # the file of the config map, and paths of certificates, are those of the shipped settings
    settings = yaml.safe_load((deploy / "dask-config.yaml").read_text(encoding="utf-8"))
    mounts = {mount["mountPath"] for mount in PODS["worker"]["containers"][0]["volumeMounts"]}
    assert str(Path(settings["distributed"]["comm"]["tls"]["ca-file"]).parent) in mounts
    assert "/etc/dask" in mounts
