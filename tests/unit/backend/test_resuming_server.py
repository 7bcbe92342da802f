"""Turns that are aborted by a weight update go on under the new weights, and nothing sampled is lost. The engine is real, its model tiny."""

import asyncio

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from napmem_rl.backend.engine_transformers import SamplingParams, TransformersEngine
from napmem_rl.backend.resuming_server import ResumingServer, compute_part_seed
from napmem_rl.backend.token_generate import SampledTurn

SAMPLING = {"max_tokens": 6, "seed": 11, "stop_token_ids": [9]}


def part(*token_ids: int, version: int, aborted: bool = False, cut: bool = False) -> SampledTurn:
    logprobs = tuple(-0.1 * version for _ in token_ids)
    return SampledTurn(token_ids=token_ids, logprobs=logprobs, min_version=version, max_version=version, is_length_stop=cut, is_aborted=aborted)


class ScriptedServer:
    """Gives one part after the other and keeps what it was asked."""

    def __init__(self, *parts: SampledTurn) -> None:
        self.parts, self.asked = list(parts), []

    async def generate(self, request_id, prompt_ids, sampling):
        self.asked.append((prompt_ids, sampling["max_tokens"], sampling["seed"]))
        return self.parts.pop(0)


def test_an_aborted_turn_goes_on_where_it_was_and_keeps_the_log_probs_of_the_weights_that_sampled_each_token():
    server = ScriptedServer(part(5, 6, version=3, aborted=True), part(version=4, aborted=True), part(7, 9, version=5))
    turn = asyncio.run(ResumingServer(server, pause_s=0.0).generate("r", [1, 2], SAMPLING))
    assert turn.token_ids == (5, 6, 7, 9)
    assert turn.logprobs == (-0.1 * 3, -0.1 * 3, -0.1 * 5, -0.1 * 5)
    assert (turn.min_version, turn.max_version) == (3, 5), "version 4 sampled none of it"
    assert not turn.is_aborted and not turn.is_length_stop
    assert [(prompt, room) for prompt, room, _ in server.asked] == [([1, 2], 6), ([1, 2, 5, 6], 4), ([1, 2, 5, 6], 4)]


def test_each_part_is_drawn_from_other_random_numbers_and_the_first_from_those_of_the_turn():
    server = ScriptedServer(part(version=1, aborted=True), part(5, version=2, aborted=True), part(5, version=3, aborted=True), part(9, version=4))
    asyncio.run(ResumingServer(server, pause_s=0.0).generate("r", [1], SAMPLING))
    seeds = [seed for _, _, seed in server.asked]
    assert seeds[:2] == [11, 11], "nothing was drawn yet"
    assert len(set(seeds)) == 3 and seeds[2:] == [compute_part_seed(11, 1), compute_part_seed(11, 2)]


def test_a_turn_that_is_aborted_at_its_limit_is_a_cut_one_and_the_server_is_not_asked_for_nothing():
    turn = asyncio.run(ResumingServer(ScriptedServer(part(1, 2, 3, 4, 5, 6, version=1, aborted=True)), pause_s=0.0).generate("r", [1], SAMPLING))
    assert turn.is_length_stop and not turn.is_aborted and len(turn.token_ids) == 6


class EngineServer:
    """A real engine that new weights reach in the middle of a turn."""

    def __init__(self, engine: TransformersEngine) -> None:
        self.engine = engine

    async def generate(self, request_id, prompt_ids, sampling):
        params = SamplingParams(max_tokens=sampling["max_tokens"], seed=sampling["seed"])
        generation = await self.engine.generate(prompt_ids, params)
        version = generation.policy_version
        return SampledTurn(
            token_ids=generation.token_ids,
            logprobs=generation.logprobs,
            min_version=version,
            max_version=version,
            is_length_stop=generation.stop_reason == "length",
            is_aborted=generation.stop_reason == "aborted",
        )


def build_model(seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48, vocab_size=40)
    return LlamaForCausalLM(LlamaConfig(**sizes, initializer_range=0.3, max_position_embeddings=4096, eos_token_id=None))


def test_a_turn_across_a_weight_update_has_log_probs_of_the_old_weights_before_it_and_of_the_new_ones_after_it():
    old, new = build_model(0), build_model(1)
    engine = TransformersEngine(build_model(0), max_context=4000, policy_version=7)
    prompt, sampling = [1, 2, 3], {"max_tokens": 600, "seed": 5}

    async def play() -> SampledTurn:
        turn = asyncio.create_task(ResumingServer(EngineServer(engine)).generate("r", prompt, sampling))
        await asyncio.sleep(0.15)
        await asyncio.to_thread(engine.update_weights, dict(new.state_dict()), version=8)
        return await turn

    turn = asyncio.run(play())
    engine.close()
    assert (turn.min_version, turn.max_version, len(turn.token_ids)) == (7, 8, 600)
    ids = torch.tensor([[*prompt, *turn.token_ids]])
    expected = []
    for model in (old, new):
        with torch.no_grad():
            scores = torch.log_softmax(model(ids).logits[0, len(prompt) - 1 : -1], -1)
        expected.append(scores.gather(1, ids[0, len(prompt) :, None])[:, 0])
    given = torch.tensor(turn.logprobs)
    by_old, by_new = ((given - one).abs() < 1e-3 for one in expected)
    change = int(by_old.int().argmin())  # the first token that the old weights do not explain
    assert 0 < change < 600 and by_old[:change].all() and by_new[change:].all()
