"""The quickstart's policy: its tokenizer says what the stack expects, its loop learns."""

from __future__ import annotations

import random

import pytest
import torch

from napmem_rl.backend.quickstart_world import Curriculum, encode_copying, encode_practice
from napmem_rl.backend.tiny_policy import build_model, build_tokenizer, call_prefixes
from napmem_rl.backend.tiny_sft import Document, SftSettings, compute_loss, learning_rate, train_sft
from napmem_rl.data.world_practice import PracticeText
from napmem_rl.llm.token_context import encode_plain
from napmem_rl.schema import ToolCall
from napmem_rl.tools.parse import parse_turn, render_call
from napmem_rl.tools.spec import MEMORY_TOOLS

TEXTS = ["rec:1 2024-01-05 fact: Mia lives in Oslo. [msg:2]", "Which city does User's sister live in?", "profile.md unknown"]
TOKENIZER = build_tokenizer(TEXTS, max_length=64)


def test_ids_dates_and_possessives_are_one_token_each() -> None:
    assert TOKENIZER.tokenize("rec:1 2024-01-05 User's profile.md.") == ["rec:1", "2024-01-05", "User's", "profile.md", "."]


@pytest.mark.parametrize("tool", MEMORY_TOOLS, ids=lambda tool: tool.name)
def test_a_call_is_two_fixed_tokens_around_its_argument_and_survives_the_round_trip(tool) -> None:
    ((argument, schema),) = tool.parameters["properties"].items()
    call = ToolCall(name=tool.name, arguments={argument: ["rec:1"] if schema["type"] == "array" else "Mia"})
    ids = TOKENIZER.encode(render_call(call, "hermes"), add_special_tokens=False)
    assert len(ids) == 3 and TOKENIZER.decode(ids[:1]) == call_prefixes()[tool.name]
    parsed = parse_turn(TOKENIZER.decode(ids), tool_format="hermes", tools=MEMORY_TOOLS)
    assert parsed.error is None and parsed.calls == (call,)


def test_control_text_inside_a_memory_stays_text() -> None:
    added = set(TOKENIZER.get_added_vocab().values()) - {TOKENIZER.unk_token_id}
    for text in (*call_prefixes().values(), "<|end|>", "<|assistant|>", "<answer>", "Mia <|end|><|user|> Oslo"):
        assert not added & set(encode_plain(TOKENIZER, text))


def test_only_answers_of_a_practice_text_are_targets() -> None:
    document = encode_practice(PracticeText(TEXTS[0], (("Which city", "Oslo"),)), TOKENIZER)
    targets = [token for token, is_target in zip(document.token_ids, document.is_target, strict=True) if is_target]
    assert TOKENIZER.convert_ids_to_tokens(targets) == ["<answer>", "Oslo", "</answer>", "<|end|>"]


def test_copying_asks_for_the_second_half_alone() -> None:
    document = encode_copying(TOKENIZER, random.Random(0), num_words=5)
    assert document.token_ids[:5] == document.token_ids[5:] and document.is_target == [0] * 6 + [1] * 4


def test_the_curriculum_moves_from_practice_to_demonstrations() -> None:
    demonstration = Document([1], [1])

    curriculum = Curriculum("unit", [demonstration], TOKENIZER, random.Random(0), start=1.0, end=0.25, until=0.5, copying=1.0, pool_size=400)
    shares = [sum(len(d.token_ids) > 1 for d in curriculum.next_documents(progress)) / 400 for progress in (0.0, 0.25, 0.9)]
    assert shares[0] == 1.0 and 0.55 < shares[1] < 0.7 and 0.18 < shares[2] < 0.32


def test_the_learning_rate_warms_up_and_ends_at_its_floor() -> None:
    settings = SftSettings(steps=100, lr=1.0, warmup_steps=10, final_lr_fraction=0.1)
    assert learning_rate(0, settings) == pytest.approx(0.1)
    assert learning_rate(50, settings) == pytest.approx(0.1 + 0.9 * 0.5)
    assert learning_rate(100, settings) == pytest.approx(0.1)


def test_packed_documents_do_not_see_each_other_and_context_tokens_weigh_less() -> None:
    model = build_model(TOKENIZER, seed=0, width=32, layers=1, heads=2, ffn=32)
    short, long = Document([6, 7, 8], [0, 1, 1]), Document([6, 7, 8, 9, 10, 11], [0, 0, 0, 1, 1, 1])
    together, _ = compute_loss(model, [short, long], context_weight=0.5)
    parts = [compute_loss(model, [document], context_weight=0.5)[0] for document in (short, long)]
    weights = [2.0, 3 + 2 * 0.5]
    assert together.item() == pytest.approx(sum(p.item() * w for p, w in zip(parts, weights, strict=True)) / sum(weights), rel=1e-5)


def test_sixty_steps_halve_the_loss() -> None:
    torch.manual_seed(0)
    model = build_model(TOKENIZER, seed=0, width=32, layers=1, heads=2, ffn=32)
    documents = [encode_practice(PracticeText(TEXTS[0], (("Which city", "Oslo"),)), TOKENIZER) for _ in range(8)]
    losses: list[float] = []
    train_sft(model, lambda progress: documents, SftSettings(steps=60, batch_size=8, warmup_steps=2), on_step=lambda _, loss: losses.append(loss))
    assert losses[-1] < losses[0] / 2
