"""The RayJob manifest: its fields, and whether its cluster holds the job that its entrypoint starts."""

from __future__ import annotations

import copy
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from napmem_rl.backend.cluster_needs import Needs, NodeRoom, find_shortages
from napmem_rl.config.recipe import Recipe, load_recipe

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = yaml.safe_load(Path(__file__).with_name("rayjob_schema.yaml").read_text())


@pytest.fixture
def manifest() -> dict[str, Any]:
    """The manifest as it would be applied (a copy of each shared part, as YAML's aliases stand for)."""
    return copy.deepcopy(yaml.safe_load((ROOT / "launch" / "kuberay" / "rayjob.yaml").read_text()))


def load_entrypoint(manifest: dict[str, Any]) -> Recipe:
    python, launcher, recipe, *overrides = shlex.split(manifest["spec"]["entrypoint"])
    assert (python, launcher) == ("python", "launch/grpo.py")
    return load_recipe(ROOT / recipe, overrides)


def group_of(manifest: dict[str, Any]) -> dict[str, Any]:
    (group,) = manifest["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    return group


def pods_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return [manifest["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"], group_of(manifest)["template"]["spec"]]


def limits_of(pod: dict[str, Any]) -> dict[str, str]:
    return pod["containers"][0]["resources"]["limits"]


def test_every_field_is_one_that_a_rayjob_has(manifest):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(manifest, SCHEMA)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["spec", "entryPoint"], "python x"),
        (["spec", "rayClusterSpec", "workerGroupSpecs", 0, "replicas"], "2"),
        (["spec", "rayClusterSpec", "headGroupSpec", "rayStartParams", "num-gpus"], 0),
        (["spec", "rayClusterSpec", "authOptions", "mode"], "tokens"),
        (["metadata", "name"], "Napmem_GRPO"),
    ],
)
def test_a_misspelt_field_or_a_value_of_another_type_is_refused(manifest, path, value):
    parent = manifest
    for part in path[:-1]:
        parent = parent[part]
    parent[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest, SCHEMA)


def test_the_entrypoint_loads_as_a_recipe_and_fits_the_workers(manifest):
    recipe, group = load_entrypoint(manifest), group_of(manifest)
    assert recipe.verl.trainer.nnodes == group["replicas"] == group["minReplicas"] == group["maxReplicas"]
    assert str(recipe.verl.trainer.n_gpus_per_node) == limits_of(pods_of(manifest)[1])["nvidia.com/gpu"]


def test_the_job_can_be_placed_on_the_pods(manifest):
    recipe = load_entrypoint(manifest)
    trainer, queue = recipe.verl.trainer, recipe.verl.transfer_queue
    needs = Needs(
        num_nodes=trainer.nnodes,
        gpus_per_node=trainer.n_gpus_per_node,
        storage_units=queue.backend.SimpleStorage.num_data_storage_units,
        encoder_nodes=0,
        object_store_bytes=0,
        checkpoint_bytes=0,
        kept_checkpoints=0,
    )
    sizes = [(float(limits_of(pod)["cpu"]), float(limits_of(pod).get("nvidia.com/gpu", 0))) for pod in pods_of(manifest)]
    head, worker = [
        NodeRoom(name=name, cpus=cpus, gpus=gpus, total_cpus=cpus, total_gpus=gpus, object_store_bytes=1e9)
        for name, (cpus, gpus) in zip(("head", "worker"), sizes, strict=True)
    ]
    assert find_shortages(needs, [head, *[worker] * group_of(manifest)["replicas"]]) == []


def test_all_pods_see_what_the_entrypoint_points_to_and_have_shared_memory(manifest):
    recipe = load_entrypoint(manifest)
    for pod in pods_of(manifest):
        mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes[mounts["/dev/shm"]]["emptyDir"]["medium"] == "Memory"
        assert "persistentVolumeClaim" in volumes[mounts["/shared"]]
    paths = [str(recipe.data_dir), str(recipe.model_path), recipe.memory.encoder, recipe.verl.trainer.default_local_dir]
    assert all(path.startswith("/shared/") for path in paths)


def test_versions_are_those_of_the_lock_and_keys_come_from_a_secret(manifest):
    lock = (ROOT / "constraints-gpu.txt").read_text()
    assert f"ray=={manifest['spec']['rayClusterSpec']['rayVersion']}\n" in lock
    assert manifest["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token"}
    for pod in pods_of(manifest):
        (key,) = [entry for entry in pod["containers"][0]["env"] if entry["name"] == load_entrypoint(manifest).judge.api_key_env]
        assert "value" not in key and key["valueFrom"]["secretKeyRef"]["name"] == "napmem-keys"


def test_a_stopped_job_has_time_to_save_and_a_failed_one_is_tried_again(manifest):
    env = yaml.safe_load(manifest["spec"]["runtimeEnvYAML"])["env_vars"]
    assert int(env["RAY_JOB_STOP_WAIT_TIME_S"]) >= 300 and manifest["spec"]["backoffLimit"] > 0
    recipe = load_entrypoint(manifest)
    assert recipe.verl.trainer.resume_mode == "auto" and recipe.verl.trainer.save_freq > 0


def test_the_container_recipe_says_that_it_was_never_built_and_installs_the_lock():
    text = (ROOT / "launch" / "container" / "Dockerfile").read_text()
    assert "never been built" in text
    assert re.search(r"pip install .*--no-deps .*constraints-gpu\.txt", text) or "grep -v '^flash-attn==' constraints-gpu.txt" in text
    assert "flash-attn==2.8.3" in text
