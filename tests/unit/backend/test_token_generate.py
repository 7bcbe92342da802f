import asyncio
from types import SimpleNamespace

import pytest

from napmem_rl.backend.tiny_policy import build_tokenizer
from napmem_rl.backend.token_generate import (
    BatchingServer,
    ClientServer,
    SampledTurn,
    TokenGenerate,
    compute_request_seed,
    find_end_ids,
    read_token_output,
)
from napmem_rl.config.sections import AgentConfig
from napmem_rl.errors import BackendError, StaleWeightsError
from napmem_rl.schema import ToolCall
from napmem_rl.tools.parse import render_call
from napmem_rl.tools.spec import MEMORY_TOOLS

TOKENIZER = build_tokenizer(["where does ana live ? ana lives in oslo"], max_length=128)
END = TOKENIZER.eos_token_id
CALL = render_call(ToolCall(name="search_records", arguments={"query": "ana"}), "hermes")


def encode(text: str) -> list[int]:
    return TOKENIZER(text, add_special_tokens=False)["input_ids"]


class ScriptedServer:
    """Answers with the given texts and keeps what it was asked."""

    def __init__(self, *texts: str, versions: tuple[int, ...] = (3, 3, 3), has_end: bool = True) -> None:
        self.texts, self.versions, self.has_end, self.asked = list(texts), list(versions), has_end, []

    async def generate(self, request_id, prompt_ids, sampling):
        self.asked.append((request_id, prompt_ids, dict(sampling)))
        ids = tuple(encode(self.texts.pop(0)) + ([END] if self.has_end else []))
        version = self.versions.pop(0)
        return SampledTurn(token_ids=ids, logprobs=(-0.5,) * len(ids), min_version=version, max_version=version, is_length_stop=ids[-1] != END)


def build(server, *, is_sync=True, **limits) -> TokenGenerate:
    config = AgentConfig(**{"max_turn_tokens": 16, "max_context_tokens": 128, **limits})
    sampling = {"temperature": 1.0, "stop_token_ids": [END]}
    return TokenGenerate(
        server=server, tokenizer=TOKENIZER, config=config, sampling=sampling, seed_of_turn=lambda turn: 100 + turn, expects_one_version=is_sync
    )


QUESTION = [{"role": "user", "content": "where does ana live ?"}]
AFTER_TOOL = [*QUESTION, {"role": "assistant", "content": CALL}, {"role": "tool", "content": "ana lives in oslo"}]


def test_each_prompt_starts_with_all_that_was_sampled_before():
    server = ScriptedServer(CALL, "<answer>oslo</answer>")
    generate = build(server)

    async def play():
        return await generate(QUESTION, MEMORY_TOOLS), await generate(AFTER_TOOL, MEMORY_TOOLS)

    first, second = asyncio.run(play())
    assert first.parsed.calls[0].arguments == {"query": "ana"}
    assert second.parsed.answer == "oslo"
    assert second.prompt_ids[: len(first.prompt_ids + first.response_ids)] == first.prompt_ids + first.response_ids
    assert second.prompt_ids == tuple(encode(TOKENIZER.apply_chat_template(AFTER_TOOL, add_generation_prompt=True, tokenize=False)))
    assert first.policy_version == 3
    assert [asked[2]["seed"] for asked in server.asked] == [100, 101]
    assert server.asked[0][0] == server.asked[1][0], "one request id for the whole episode"


def test_a_turn_gets_no_more_tokens_than_the_context_has_left():
    server = ScriptedServer("<answer>oslo</answer>")
    prompt = len(encode(TOKENIZER.apply_chat_template(QUESTION, add_generation_prompt=True, tokenize=False)))
    asyncio.run(build(server, max_context_tokens=prompt + 5)(QUESTION, MEMORY_TOOLS))
    assert server.asked[0][2]["max_tokens"] == 5


def test_without_room_the_turn_is_empty_and_truncated_and_the_server_is_not_asked():
    server = ScriptedServer()
    turn = asyncio.run(build(server, max_context_tokens=3)(QUESTION, MEMORY_TOOLS))
    assert turn.is_truncated and turn.text == "" and turn.response_ids == ()
    assert server.asked == []


def test_weights_that_change_within_an_episode_are_an_error_only_when_rollouts_are_synchronous():
    async def play(generate):
        await generate(QUESTION, MEMORY_TOOLS)
        return await generate(AFTER_TOOL, MEMORY_TOOLS)

    with pytest.raises(StaleWeightsError, match="versions 3 to 4"):
        asyncio.run(play(build(ScriptedServer(CALL, "<answer>oslo</answer>", versions=(3, 4)))))
    generate = build(ScriptedServer(CALL, "<answer>oslo</answer>", versions=(3, 4)), is_sync=False)
    asyncio.run(play(generate))
    assert (generate.min_version, generate.max_version) == (3, 4)


def test_a_history_that_does_not_continue_the_previous_turn_is_refused():
    generate = build(ScriptedServer(CALL))

    async def play():
        await generate(QUESTION, MEMORY_TOOLS)
        await generate([*QUESTION, {"role": "user", "content": "ana"}], MEMORY_TOOLS)

    with pytest.raises(BackendError, match="does not continue"):
        asyncio.run(play())


def test_a_cut_turn_is_told_by_its_last_token_not_by_the_stop_reason():
    output = SimpleNamespace(token_ids=[5, 6], log_probs=[-1.0, -2.0], stop_reason="completed", extra_fields={"global_steps": 2})
    assert read_token_output(output, end_ids=[9]).is_length_stop
    assert not read_token_output(output, end_ids=[6]).is_length_stop
    assert read_token_output(output, end_ids=[6]).min_version == 2


@pytest.mark.parametrize("token_ids, log_probs, words", [([], [], "no tokens"), ([1, 2], [-1.0], "1 log-probs"), ([1], None, "0 log-probs")])
def test_a_reply_without_tokens_or_log_probs_is_the_engines_failure(token_ids, log_probs, words):
    output = SimpleNamespace(token_ids=token_ids, log_probs=log_probs, stop_reason="stop", extra_fields={})
    with pytest.raises(BackendError, match=words):
        read_token_output(output, end_ids=[1])


@pytest.mark.parametrize("reason", ["aborted", "abort"])
@pytest.mark.parametrize("token_ids, log_probs", [([5], [0.0]), ([], None)])
def test_a_turn_that_the_server_gave_up_is_told_from_one_that_the_policy_was_cut_in(reason, token_ids, log_probs):
    turn = read_token_output(SimpleNamespace(token_ids=token_ids, log_probs=log_probs, stop_reason=reason, extra_fields={}), end_ids=[1])
    assert turn.is_aborted and not turn.is_length_stop
    ended = SimpleNamespace(token_ids=[5, 1], log_probs=[0.0, 0.0], stop_reason=reason, extra_fields={})
    assert not read_token_output(ended, end_ids=[1]).is_aborted, "it ended before the server gave it up"


def test_a_turn_that_was_given_up_is_our_failure_where_nobody_resumes_it():
    class GivingUp:
        async def generate(self, request_id, prompt_ids, sampling):
            return SampledTurn(token_ids=(5,), logprobs=(0.0,), min_version=1, max_version=1, is_length_stop=False, is_aborted=True)

    with pytest.raises(BackendError, match="gave the turn up"):
        asyncio.run(build(GivingUp())(QUESTION, MEMORY_TOOLS))


def test_seeds_depend_on_every_part_of_a_request_and_on_nothing_else():
    base = {"step": 1, "task_id": "t", "sample_index": 0, "turn_index": 0}
    seeds = {compute_request_seed(7, **{**base, **change}) for change in ({}, {"step": 2}, {"task_id": "u"}, {"sample_index": 1}, {"turn_index": 1})}
    assert len(seeds | {compute_request_seed(8, **base)}) == 6
    assert compute_request_seed(7, **base) == compute_request_seed(7, **base)
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_end_ids_hold_the_templates_the_tokenizers_and_the_models_own():
    assert find_end_ids(TOKENIZER, SimpleNamespace(eos_token_id=[END, 3])) == tuple(sorted({END, 3}))
    assert find_end_ids(TOKENIZER) == (END,)


class FakeClient:
    """verl's client with servers that count their calls. They answer the turns of a call one by one, the last first, and may die on the way."""

    def __init__(self, answers: int = 99) -> None:
        self.batches, self.released, self.answers = [], 0, answers
        self.hold = asyncio.Event()  # before the answer to the first turn of a call
        self.hold.set()

    async def _acquire_server(self, request_id, **fields):
        async def later(reply):
            return reply

        async def remote(requests):
            self.batches.append(len(requests))
            for count, (index, (prompt, _)) in enumerate(reversed(list(enumerate(requests)))):
                if count >= self.answers:
                    raise RuntimeError("server died")
                if index == 0:
                    await self.hold.wait()
                fields = {"token_ids": [prompt[0], END], "log_probs": [0.0, 0.0], "stop_reason": "stop", "extra_fields": {"global_steps": 1}}
                yield later([(index, SimpleNamespace(**fields))])

        return "server", SimpleNamespace(generate_stream=SimpleNamespace(remote=remote))

    def _release_server(self, server_id, request_id=None):
        self.released += 1


SAMPLING = {"max_tokens": 4, "stop_token_ids": [END]}


def test_turns_that_arrive_together_travel_in_one_call_per_server_and_each_gets_its_own_reply():
    client = FakeClient()

    async def ask():
        server = BatchingServer(client, num_servers=2)
        return await asyncio.gather(*[server.generate("r", [100 + i], SAMPLING) for i in range(7)])

    turns = asyncio.run(ask())
    assert [turn.token_ids[0] for turn in turns] == [100 + i for i in range(7)]
    assert sorted(client.batches) == [3, 4]
    assert client.released == 2


def test_a_short_turn_does_not_wait_for_a_long_one_of_the_same_call():
    async def ask():
        client = FakeClient()
        client.hold.clear()
        server = BatchingServer(client)
        turns = [asyncio.create_task(server.generate("r", [100 + i], SAMPLING)) for i in range(3)]
        done, pending = await asyncio.wait(turns, timeout=0.2)
        client.hold.set()
        return [turn in done for turn in turns], (await turns[0]).token_ids[0]

    assert asyncio.run(ask()) == ([False, True, True], 100)


def test_a_server_that_dies_on_the_way_fails_the_turns_that_still_wait_for_it():
    client = FakeClient(answers=2)

    async def ask():
        server = BatchingServer(client)
        return await asyncio.gather(*[server.generate("r", [1], SAMPLING) for _ in range(3)], return_exceptions=True)

    replies = asyncio.run(ask())
    assert [isinstance(reply, BackendError) for reply in replies] == [True, False, False]


def test_a_dead_server_fails_every_turn_that_waits_for_it():
    client = FakeClient(answers=0)

    async def ask():
        server = BatchingServer(client)
        return await asyncio.gather(*[server.generate("r", [1], SAMPLING) for _ in range(3)], return_exceptions=True)

    replies = asyncio.run(ask())
    assert all(isinstance(reply, BackendError) and "server died" in reply.message for reply in replies)
    assert client.released == 1


def test_servers_without_seeds_are_not_sent_one():
    seen = {}

    async def generate(**kwargs):
        seen.update(kwargs["sampling_params"])
        return SimpleNamespace(token_ids=[END], log_probs=[0.0], stop_reason="stop", extra_fields={})

    server = ClientServer(generate, passes_seed=False)
    asyncio.run(server.generate("r", [1], {**SAMPLING, "seed": 5}))
    assert "seed" not in seen and seen["max_tokens"] == 4
