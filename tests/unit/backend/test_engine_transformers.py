"""The continuous-batching engine against plain forwards of the same model."""

import asyncio
from collections.abc import Iterator

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from napmem_rl.backend.engine_transformers import Generation, SamplingParams, TransformersEngine
from napmem_rl.errors import BackendError, ConfigError

VOCABULARY = 40
PROMPTS = [[5, 6, 7], [1], [9, 8, 7, 6, 5, 4, 3, 2, 1], [5, 6, 7], [30, 31, 32, 33, 34]]


def build_model(seed: int = 0, **overrides: object) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48, vocab_size=VOCABULARY)
    config = LlamaConfig(**sizes, tie_word_embeddings=True, initializer_range=0.3, max_position_embeddings=256, bos_token_id=0, eos_token_id=None, **overrides)
    return LlamaForCausalLM(config)


@pytest.fixture
def engine() -> Iterator[TransformersEngine]:
    engine = TransformersEngine(build_model(), max_context=64, max_batch=4, policy_version=3)
    yield engine
    engine.close()


def run(engine: TransformersEngine, prompts: list[list[int]], params: list[SamplingParams]) -> list[Generation]:
    return asyncio.run(engine.generate_many(list(zip(prompts, params, strict=True))))


def full_logprobs(model: LlamaForCausalLM, prompt: list[int], response: tuple[int, ...], temperature: float) -> torch.Tensor:
    """Log-probs of the response by one forward over everything, [R]."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(response)[:, None])[:, 0]


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (1.3, 0.8), (0.0, 1.0)])
def test_log_probs_equal_those_of_a_full_forward(engine: TransformersEngine, temperature: float, top_p: float) -> None:
    params = [SamplingParams(temperature=temperature, top_p=top_p, max_tokens=7 + row, seed=row) for row in range(len(PROMPTS))]
    for prompt, generation in zip(PROMPTS, run(engine, PROMPTS, params), strict=True):
        expected = full_logprobs(build_model(), prompt, generation.token_ids, temperature or 1.0)
        assert (torch.tensor(generation.logprobs) - expected).abs().max() < 1e-5
        assert generation.policy_version == 3


def test_greedy_tokens_equal_generate(engine: TransformersEngine) -> None:
    outputs = run(engine, PROMPTS, [SamplingParams(temperature=0.0, max_tokens=8)] * len(PROMPTS))
    model = build_model()
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        expected = model.generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False, pad_token_id=0)[0, len(prompt) :]
        assert list(output.token_ids) == expected.tolist()


def test_a_seed_gives_the_same_tokens_whatever_else_is_in_the_batch(engine: TransformersEngine) -> None:
    params = [SamplingParams(top_p=0.9 if row % 2 else 1.0, max_tokens=10, seed=100 + row) for row in range(len(PROMPTS))]
    together = run(engine, PROMPTS, params)
    engine.clear_prefixes()
    alone = [run(engine, [prompt], [one])[0] for prompt, one in reversed(list(zip(PROMPTS, params, strict=True)))]
    assert [one.token_ids for one in together] == [one.token_ids for one in reversed(alone)]
    assert together[0].token_ids != together[3].token_ids  # same prompt, other seed


def test_top_p_draws_only_from_the_nucleus(engine: TransformersEngine) -> None:
    with torch.no_grad():
        probs, order = torch.softmax(build_model()(torch.tensor([[5, 6, 7]])).logits[0, -1], -1).sort(descending=True)
    size = int((probs.cumsum(0) < 0.5).sum()) + 1
    outputs = run(engine, [[5, 6, 7]] * 60, [SamplingParams(top_p=0.5, max_tokens=1, seed=seed) for seed in range(60)])
    assert {one.token_ids[0] for one in outputs} <= set(order[:size].tolist())


def test_a_stop_token_ends_the_response_and_is_part_of_it(engine: TransformersEngine) -> None:
    (free,) = run(engine, [[5, 6, 7]], [SamplingParams(max_tokens=12, seed=4)])
    stop = free.token_ids[5]
    first = free.token_ids.index(stop)
    (stopped,) = run(engine, [[5, 6, 7]], [SamplingParams(max_tokens=12, seed=4, stop_token_ids=(stop,))])
    assert free.stop_reason == "length" and len(free.token_ids) == 12
    assert stopped.stop_reason == "stop" and stopped.token_ids == free.token_ids[: first + 1]


def test_max_tokens_and_the_context_bound_the_response(engine: TransformersEngine) -> None:
    short, full = run(engine, [[1, 2], [1, 2]], [SamplingParams(max_tokens=3), SamplingParams(max_tokens=500)])
    assert (len(short.token_ids), len(full.token_ids)) == (3, 62)
    assert full.stop_reason == "length"


def test_the_next_turn_starts_from_the_keys_of_the_last_and_changes_nothing(engine: TransformersEngine) -> None:
    stops = tuple(range(0, VOCABULARY, 2))
    (turn,) = run(engine, [[5, 6, 7]], [SamplingParams(max_tokens=40, seed=1, stop_token_ids=stops)])
    assert turn.stop_reason == "stop"
    prompt = [5, 6, 7, *turn.token_ids, 11, 12]
    (cached,) = run(engine, [prompt], [SamplingParams(max_tokens=5, seed=2)])
    (fresh,) = run(engine, [prompt], [SamplingParams(max_tokens=5, seed=2)])
    assert (cached.num_cached_tokens, fresh.num_cached_tokens) == (2 + len(turn.token_ids), 0)
    assert cached.token_ids == fresh.token_ids
    assert torch.tensor(cached.logprobs).allclose(torch.tensor(fresh.logprobs), atol=1e-5)


def test_new_weights_change_version_and_outputs_and_no_old_key_is_used(engine: TransformersEngine) -> None:
    greedy = SamplingParams(temperature=0.0, max_tokens=6, stop_token_ids=tuple(range(VOCABULARY)))
    (before,) = run(engine, [[5, 6, 7]], [greedy])
    new = build_model(seed=9)
    weights = {name: weight for name, weight in new.state_dict().items() if name != "lm_head.weight"}  # tied: one name is enough
    first = dict(list(weights.items())[:3])
    engine.update_weights(first, is_last=False, version=4)
    engine.update_weights({name: weight for name, weight in weights.items() if name not in first}, version=4)
    prompt = [5, 6, 7, *before.token_ids, 8]
    (after,) = run(engine, [prompt], [SamplingParams(max_tokens=6, seed=0)])
    assert (before.policy_version, after.policy_version, after.num_cached_tokens) == (3, 4, 0)
    assert (torch.tensor(after.logprobs) - full_logprobs(new, prompt, after.token_ids, 1.0)).abs().max() < 1e-5


def test_wrong_weights_are_refused_and_block_generation_until_a_complete_update(engine: TransformersEngine) -> None:
    weights = dict(build_model(seed=9).state_dict())
    with pytest.raises(BackendError, match="1 names are not the model's.*lm_hat"):
        engine.update_weights({"lm_hat.weight": torch.zeros(1)})
    with pytest.raises(BackendError, match="has another shape.*expected"):
        engine.update_weights({"model.norm.weight": torch.zeros(5)})
    with pytest.raises(BackendError, match="weights were not sent.*model.norm.weight"):
        engine.update_weights({name: weight for name, weight in weights.items() if name != "model.norm.weight"})
    with pytest.raises(BackendError, match="were not sent"):
        run(engine, [[1]], [SamplingParams(max_tokens=1)])
    engine.update_weights(weights, version=5)
    assert run(engine, [[1]], [SamplingParams(max_tokens=1)])[0].policy_version == 5


def test_abort_returns_what_was_sampled_and_the_engine_goes_on(engine: TransformersEngine) -> None:
    slow = engine._decode

    async def scenario() -> tuple[Generation, Generation, list[str]]:
        release = asyncio.Event()
        loop = asyncio.get_running_loop()

        def decode_and_tell() -> None:
            slow()
            loop.call_soon_threadsafe(release.set)
            engine._wake.acquire()
            engine._wake.wait(0.02)
            engine._wake.release()

        engine._decode = decode_and_tell
        one = asyncio.create_task(engine.generate([1, 2], SamplingParams(max_tokens=60, seed=1), request_id="one"))
        two = asyncio.create_task(engine.generate([3, 4], SamplingParams(max_tokens=60, seed=2), request_id="two"))
        await release.wait()
        ids = await asyncio.to_thread(engine.abort_all)
        return await one, await two, ids

    first, second, ids = asyncio.run(scenario())
    engine._decode = slow
    assert (first.stop_reason, second.stop_reason, ids) == ("aborted", "aborted", ["one", "two"])
    assert 1 <= len(first.token_ids) < 60
    assert (torch.tensor(first.logprobs) - full_logprobs(build_model(), [1, 2], first.token_ids, 1.0)).abs().max() < 1e-5
    assert len(run(engine, [[1]], [SamplingParams(max_tokens=2)])[0].token_ids) == 2


@pytest.mark.parametrize(("prompt", "words"), [([], "does not fit"), ([1] * 64, "64 tokens.; expected 1 to 63"), ([VOCABULARY], "outside the vocabulary")])
def test_a_prompt_that_cannot_be_served_is_a_clear_error(engine: TransformersEngine, prompt: list[int], words: str) -> None:
    with pytest.raises(BackendError, match=words):
        run(engine, [prompt], [SamplingParams()])


def test_a_failing_step_fails_its_requests_and_the_engine_stays_usable(engine: TransformersEngine) -> None:
    forward = engine._forward
    engine._forward = lambda *args: (_ for _ in ()).throw(RuntimeError("no memory"))
    with pytest.raises(BackendError, match="a step failed .RuntimeError: no memory"):
        run(engine, [[1, 2]], [SamplingParams(max_tokens=2)])
    engine._forward = forward
    assert len(run(engine, [[1, 2]], [SamplingParams(max_tokens=2)])[0].token_ids) == 2


def test_a_model_with_sliding_windows_is_refused() -> None:
    with pytest.raises(ConfigError, match="full-attention layers only"):
        TransformersEngine(build_model(layer_types=["full_attention", "sliding_attention"]), max_context=64)


@pytest.mark.parametrize(("name", "value"), [("temperature", -0.1), ("top_p", 0.0), ("max_tokens", 0)])
def test_sampling_parameters_out_of_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"sampling parameter {name}"):
        SamplingParams(**{name: value})


def test_weights_with_nan_fail_the_request_and_leave_no_trace_after_a_good_update(engine: TransformersEngine) -> None:
    good = {name: weight.clone() for name, weight in build_model().state_dict().items()}
    bad = {name: torch.full_like(weight, float("nan")) for name, weight in good.items()}
    expected = run(engine, PROMPTS, [SamplingParams(max_tokens=5, seed=1)] * len(PROMPTS))
    engine.update_weights(bad)
    with pytest.raises(BackendError, match="not finite"):
        run(engine, PROMPTS, [SamplingParams(max_tokens=5, seed=1)] * len(PROMPTS))
    engine.update_weights(good)
    again = run(engine, PROMPTS, [SamplingParams(max_tokens=5, seed=1)] * len(PROMPTS))
    assert [one.token_ids for one in again] == [one.token_ids for one in expected]


def test_responses_come_as_they_end_the_short_ones_first(engine: TransformersEngine) -> None:
    async def collect() -> list[tuple[int, int]]:
        requests = [([1, 2], SamplingParams(max_tokens=limit, seed=limit)) for limit in (12, 2, 6)]
        return [(index, len(generation.token_ids)) async for done in engine.generate_as_done(requests) for index, generation in done]

    assert asyncio.run(collect()) == [(1, 2), (2, 6), (0, 12)]


def test_a_stream_that_nobody_reads_any_more_frees_its_rows(engine: TransformersEngine) -> None:
    async def leave() -> int:
        stream = engine.generate_as_done([([1, 2], SamplingParams(max_tokens=1)), ([1, 2], SamplingParams(max_tokens=60))])
        await anext(stream)
        await stream.aclose()
        await engine.generate([3], SamplingParams(max_tokens=1))
        return len(engine._active) + len(engine._waiting)

    assert asyncio.run(leave()) == 0
