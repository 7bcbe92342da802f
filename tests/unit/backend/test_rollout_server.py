"""The rollout server between verl and the engine: wire format, sampling parameters, pausing. Without Ray; the engine is a stand-in."""

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("verl")

import torch

from napmem_rl.backend.engine_transformers import Generation
from napmem_rl.backend.rollout_transformers import TransformersServer, from_wire, to_wire, wait_bounded
from napmem_rl.errors import BackendError


class FakeEngine:
    """Answers every request with one token."""

    def __init__(self) -> None:
        self.policy_version, self.asked, self.cleared = 4, [], 0

    async def generate(self, prompt, params, *, request_id=None):
        self.asked.append((prompt, params))
        return Generation((7,), (-0.5,), "stop", self.policy_version, 2)

    async def generate_as_done(self, requests):
        for index, (prompt, params) in enumerate(requests):
            yield [(index, await self.generate(prompt, params))]

    def abort_all(self):
        return ["one"]

    def clear_prefixes(self):
        self.cleared += 1


def build_server() -> TransformersServer:
    server = object.__new__(TransformersServer)
    server.config = SimpleNamespace(temperature=0.7, top_p=1.0, prompt_length=10, response_length=8)
    server._engine = FakeEngine()
    server._is_paused = server._is_rejecting = False
    server._resumed = asyncio.Event()
    server._resumed.set()
    return server


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_weight_survives_the_wire_bit_by_bit_even_where_ray_maps_it_read_only(dtype):
    weight = torch.randn(3, 4, dtype=dtype).t()  # not contiguous
    kind, shape, data = to_wire(weight)
    data.flags.writeable = False
    back = from_wire((kind, shape, data))
    assert back.dtype == dtype and torch.equal(back, weight)


def test_verls_parameters_reach_the_engine_and_its_rule_bounds_a_response_without_a_limit():
    server = build_server()
    params = {"temperature": 0.0, "top_p": 0.9, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True, "stop_token_ids": [2], "seed": 5, "max_tokens": 3}
    output = asyncio.run(server.generate([1, 2], params, "r"))
    (asked,) = server._engine.asked
    assert (asked[1].temperature, asked[1].top_p, asked[1].stop_token_ids, asked[1].seed, asked[1].max_tokens) == (0.0, 0.9, (2,), 5, 3)
    assert (output.token_ids, output.log_probs, output.stop_reason) == ([7], [-0.5], "completed")
    assert (output.extra_fields["global_steps"], output.extra_fields["finish_reason"]) == (4, "stop")
    bare = server._read_params([0] * 12, {})
    assert (bare.temperature, bare.max_tokens) == (0.7, 6)  # 10 + 8 - 12, below the response length of 8


@pytest.mark.parametrize("wrong", [{"top_k": 5}, {"repetition_penalty": 1.1}, {"min_p": 0.1}, {"ignore_eos": True}])
def test_a_parameter_that_the_engine_would_not_apply_is_refused(wrong):
    with pytest.raises(BackendError, match="not all served"):
        build_server()._read_params([1], {"temperature": 1.0, **wrong})


def test_a_paused_server_holds_requests_until_it_resumes_and_a_leaving_one_answers_aborted():
    async def collect(stream):
        return [pair async for done in stream for pair in done]

    async def scenario():
        server = build_server()
        assert await server.abort_all_requests() == {"aborted_count": 1, "request_ids": ["one"]}
        held = asyncio.create_task(collect(server.generate_stream([([1], {"max_tokens": 1})])))
        await asyncio.sleep(0.02)
        was_done = held.done()
        await server.resume_generation()
        ((index, answered),) = await held
        await server.abort_all_requests(reject_request=True)
        rejected = await server.generate([1], {"max_tokens": 1}, "r")
        streamed = await collect(server.generate_stream([([1], {"max_tokens": 1})]))
        assert index == 0 and [(number, output.stop_reason) for number, output in streamed] == [(0, "aborted")]
        return was_done, answered, rejected, server._engine.cleared

    was_done, answered, rejected, cleared = asyncio.run(scenario())
    assert not was_done and answered.stop_reason == "completed"
    assert rejected.stop_reason == "aborted" and rejected.token_ids == []
    assert cleared == 2


def test_a_wait_for_an_actor_ends_with_an_error_that_names_it():
    async def never():
        await asyncio.sleep(60)

    with pytest.raises(BackendError, match="rollout server x: did not answer within 0 s"):
        asyncio.run(wait_bounded(never(), seconds=0.01, what="rollout server x"))
