"""The manifests are what Kubernetes' schemas allow, and fit the programs and one another."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from broker_stub import settings as broker_settings
from controller.runtime import config
from controller.runtime.kafka.security.setup import access
from proto.security.access import Openness
from tests.support.paths import ROOT
from tests.tools.installation import REQUIREMENTS, IndexOutOfReachError, install

KUBERNETES = ROOT / "deploy" / "kubernetes"
FILES = sorted(path for path in KUBERNETES.glob("*.yaml") if path.name != "kustomization.yaml")
#: The oldest and the newest for which the manifests are meant.
VERSIONS = ("1.29", "1.37")


def objects() -> dict[tuple[str, str], Any]:
    found = [one for path in FILES for one in yaml.load_all(path.read_text(), yaml.CSafeLoader)]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


OBJECTS = objects()
SETS = ("zookeeper", "controller", "broker")


def pod(name: str) -> Any:
    return OBJECTS["StatefulSet", name]["spec"]["template"]["spec"]


def environment(name: str, prefix: str) -> dict[str, str]:
    (container,) = pod(name)["containers"]
    rules = KUBERNETES / "settings.yaml"
    assert rules.exists()
    return {one["name"]: one["value"] for one in container["env"] if one["name"].startswith(prefix)}


def script(name: str) -> str:
    text: str = OBJECTS["ConfigMap", "settings"]["data"][name]
    return text


def test_kustomize_takes_every_file() -> None:
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
    assert sorted(listed["resources"]) == [path.name for path in FILES]


@pytest.mark.parametrize("name", SETS)
def test_every_set_is_reachable_hardened_and_disrupted_one_by_one(name: str) -> None:
    spec = OBJECTS["StatefulSet", name]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels == {"app": name}
    service = OBJECTS["Service", spec["serviceName"]]["spec"]
    assert (service["clusterIP"], service["selector"]) == ("None", labels)
    budget = OBJECTS["PodDisruptionBudget", name]["spec"]
    assert (budget["maxUnavailable"], budget["selector"]["matchLabels"]) == (1, labels)
    given = pod(name)
    assert given["securityContext"]["runAsNonRoot"] is True
    assert given["automountServiceAccountToken"] is False
    (container,) = given["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    opened = {port["name"] for port in container["ports"]}
    assert {port["name"] for port in service["ports"]} == opened
    assert container["readinessProbe"]
    volumes = {one["name"] for one in given["volumes"]}
    volumes |= {one["metadata"]["name"] for one in spec["volumeClaimTemplates"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert {"limits", "requests"} == set(container["resources"])


def test_settings_are_known_and_guarded(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(script("rules.toml"))

    def here(environ: dict[str, str]) -> dict[str, str]:
        return {k: str(rules) if v.endswith("rules.toml") else v for k, v in environ.items()}

    own = "/etc/partition-controller/controller-1"
    given = here(environment("controller", "PARTITION_CONTROLLER_"))
    given |= {
        "PARTITION_CONTROLLER_SSL_CERTIFICATE": f"{own}.pem",
        "PARTITION_CONTROLLER_SSL_KEY": f"{own}.key",
    }
    loaded = config.load({}, None, given)
    assert access(loaded, None).openness is Openness.GUARDED
    broker = here(environment("broker", "BROKER_STUB_"))
    broker |= {"BROKER_STUB_BROKER_ID": "1"}
    broker |= {"BROKER_STUB_SSL_CERTIFICATE": f"{own}.pem", "BROKER_STUB_SSL_KEY": f"{own}.key"}
    assert broker_settings.unknown_variables(broker) == []
    assert broker_settings.load({}, broker).zookeeper == loaded.zookeeper
    servers = environment("zookeeper", "ZOO_")["ZOO_SERVERS"].split()
    assert loaded.zookeeper == ",".join(f"{server}:2181" for server in servers) + "/cluster"
    assert len(servers) == OBJECTS["StatefulSet", "zookeeper"]["spec"]["replicas"]


@pytest.mark.parametrize("path", ["/live", "/ready"])
def test_probes_ask_what_the_daemon_serves(path: str) -> None:
    (container,) = pod("controller")["containers"]
    probes = [
        container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")
    ]
    assert path in probes
    assert f"`{path}`" in (ROOT / "docs/operations.md").read_text()


def fake(directory: Path, name: str, text: str) -> None:
    (directory / name).write_text(f"#!/bin/sh\n{text}\n")
    (directory / name).chmod(0o755)


@pytest.mark.slow
def test_ids_begin_at_one(tmp_path: Path) -> None:
    for name in ("partition-controller", "broker-stub"):
        fake(tmp_path, name, 'env; echo "ran $0 $*"')
    for what, variable in (
        ("controller", "PARTITION_CONTROLLER_CONTROLLER_ID"),
        ("broker", "BROKER_STUB_BROKER_ID"),
    ):
        done = subprocess.run(
            ["sh", "-c", script("run.sh"), "run.sh", what],
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOSTNAME": f"{what}-2"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"{variable}=3\n" in done.stdout
        assert f"{what}-3.pem\n" in done.stdout
        assert re.search(r"^ran \S+ run$", done.stdout, re.MULTILINE)


@pytest.mark.slow
def test_probes_of_daemons_without_http_run_with_the_settings_of_their_pod(tmp_path: Path) -> None:
    fake(tmp_path, "python3", 'env; echo "ran $*"')
    programs = "/opt/partition-controller/deploy"
    for name, probe, ran in (
        ("broker", "startupProbe", f"{programs}/health.py broker"),
        ("broker", "livenessProbe", f"{programs}/health.py broker"),
        ("broker", "readinessProbe", f"{programs}/health.py broker"),
        ("zookeeper", "readinessProbe", f"{programs}/zookeeper_entrypoint.py serving"),
    ):
        (container,) = pod(name)["containers"]
        shell, file, *arguments = container[probe]["exec"]["command"]
        assert file == container["command"][1] == "/etc/partition-controller-settings/run.sh"
        done = subprocess.run(
            [shell, "-c", script("run.sh"), file, *arguments],
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOSTNAME": f"{name}-2"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"ran {ran}\n" in done.stdout
        assert f"/etc/partition-controller/{name}-3" in done.stdout


@pytest.mark.slow
def test_a_pod_waits_until_its_broker_may_stop(tmp_path: Path) -> None:
    """pctl says no twice."""
    fake(tmp_path, "pctl", f'echo "$@" >>{tmp_path}/asked; test "$(wc -l <{tmp_path}/asked)" -ge 3 || exit 3')
    hook = pod("broker")["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert hook == ["sh", "/etc/partition-controller-settings/pre-stop.sh"]
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOSTNAME": "broker-1", "PRE_STOP_RETRY_S": "0"}
    subprocess.run(["sh", "-c", script("pre-stop.sh")], env=environ, check=True, timeout=60)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == 3
    assert all(line.startswith("stoppable 2 --approve --reason ") for line in asked)


@pytest.mark.slow
@pytest.mark.parametrize("version", [pytest.param(VERSIONS[0], marks=pytest.mark.long), *VERSIONS[1:]])
def test_the_schemas_of_kubernetes_accept_the_manifests(version: str, tmp_path: Path) -> None:
    try:
        tool = install(REQUIREMENTS / "kubernetes-validate.txt")
    except IndexOutOfReachError as error:
        pytest.skip(f"the package index is out of reach, so the schemas are not here: {error}")
    done = tool.run("kubernetes-validate", "--strict", "--kubernetes-version", version, *map(str, FILES))
    assert done.returncode == 0, done.stdout + done.stderr
    broken = tmp_path / "broken.yaml"
    broken.write_text((KUBERNETES / "brokers.yaml").read_text().replace("replicas: 3", "replicas: three"))
    done = tool.run("kubernetes-validate", "--strict", "--kubernetes-version", version, str(broken))
    assert done.returncode != 0
