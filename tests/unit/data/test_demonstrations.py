"""Demonstrations: real tools, gold evidence in sight, and exactly the tokens of a rollout."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from napmem_rl.backend.sft_dataset import DemonstrationDataset
from napmem_rl.backend.smollm2 import CHAT_TEMPLATE
from napmem_rl.config.sections import AgentConfig, MemoryConfig
from napmem_rl.data.demonstrations import Demonstration, build_demonstrations, extract_keywords, load_demonstrations, save_demonstrations, scripts_of
from napmem_rl.errors import DataError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.builder import build_bank
from napmem_rl.schema import AnswerKey, Message, Task
from napmem_rl.tools.parse import parse_turn
from napmem_rl.tools.spec import MEMORY_TOOLS

AGENT = AgentConfig(max_context_tokens=20_000, max_turn_tokens=500, max_result_tokens=2_000, max_episode_tool_tokens=4_000)
MEMORY = MemoryConfig(encoder="none")


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and ChatML's special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    core.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    return PreTrainedTokenizerFast(tokenizer_object=core, chat_template=CHAT_TEMPLATE, eos_token="<|im_end|>", pad_token="<|endoftext|>")


TOKENIZER = build_tokenizer()


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    path = tmp_path_factory.mktemp("banks") / "ana"
    texts = ["I adopted a goat called Bruno.", "My sister repairs violins.", "I moved to Oslo <|im_end|> in spring."]
    messages = [
        Message(message_id=f"msg:{day}", session_id="s1", role="user", speaker="Ana", text=text, time=f"2024-01-0{day}T10:00:00")
        for day, text in enumerate(texts, 1)
    ]
    build_bank(path, "ana", messages)
    return MemoryBank.open(path)


def pair(question: str, reference: str, *evidence: str, needs_memory: bool = True) -> tuple[Task, AnswerKey]:
    task = Task(task_id=f"q:{question}", bank_id="ana", question=question, category="fact", needs_memory=needs_memory, asked_at="2024-02-01T00:00:00")
    return task, AnswerKey(task_id=task.task_id, references=(reference,), evidence_ids=evidence)


def decode_parts(demonstration: Demonstration) -> list[tuple[int, str]]:
    """Runs of equal mask as text."""
    parts: list[tuple[int, list[int]]] = []
    for token, mask in zip(demonstration.token_ids, demonstration.loss_mask, strict=True):
        if not parts or parts[-1][0] != mask:
            parts.append((mask, []))
        parts[-1][1].append(token)
    return [(mask, TOKENIZER.decode(ids)) for mask, ids in parts]


def test_a_demonstration_searches_reads_and_answers_with_the_mask_on_its_own_turns(bank: MemoryBank) -> None:
    made = build_demonstrations([pair("What is the goat of Ana called?", "Bruno", "msg:1")], lambda name: bank, TOKENIZER, agent=AGENT, memory=MEMORY, count=5)
    parts = decode_parts(made[0])
    assert [mask for mask, _ in parts] == [0, 1, 0, 1]
    assert parts[0][1].endswith("What is the goat of Ana called?<|im_end|>\n<|im_start|>assistant\n")
    call = parse_turn(parts[1][1].removesuffix("<|im_end|>"), tool_format="hermes", tools=MEMORY_TOOLS).calls[0]
    assert dict(call.arguments) == {"query": "goat Ana called"} and parts[1][1].endswith("<|im_end|>")
    assert "Bruno" in parts[2][1] and "msg:1" in parts[2][1] and parts[2][1].endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert parts[3][1] == "<answer>Bruno</answer><|im_end|>"


def test_a_control_token_in_a_memory_stays_text(bank: MemoryBank) -> None:
    made = build_demonstrations([pair("Where did Ana move in spring?", "Oslo", "msg:3")], lambda name: bank, TOKENIZER, agent=AGENT, memory=MEMORY, count=1)
    end = TOKENIZER.convert_tokens_to_ids("<|im_end|>")
    assert "Oslo <|im_end|> in" in TOKENIZER.decode(made[0].token_ids)
    assert made[0].token_ids.count(end) == 5  # system, user, call, results, answer: none from the memory


def test_an_answer_that_no_result_supports_is_not_taught(bank: MemoryBank) -> None:
    pairs = [pair("What is the goat of Ana called?", "Bruno", "msg:99")]
    with pytest.raises(DataError, match="none of 1 questions could be demonstrated"):
        build_demonstrations(pairs, lambda name: bank, TOKENIZER, agent=AGENT, memory=MEMORY, count=1)


def test_a_question_that_needs_no_memory_is_answered_without_a_call(bank: MemoryBank) -> None:
    made = build_demonstrations([pair("What is 2 + 2?", "4", needs_memory=False)], lambda name: bank, TOKENIZER, agent=AGENT, memory=MEMORY, count=1)
    assert [(mask, text) for mask, text in decode_parts(made[0]) if mask] == [(1, "<answer>4</answer><|im_end|>")]
    whole = TOKENIZER(TOKENIZER.decode(made[0].token_ids), add_special_tokens=False)["input_ids"]
    assert whole == list(made[0].token_ids), "the same as the conversation rendered and tokenised as a whole"


def test_both_search_tools_are_shown_first() -> None:
    firsts = {next(scripts_of(*pair(f"Question {number} about goats?", "x"), agent=AGENT))[0].split('"name": "')[1].split('"')[0] for number in range(12)}
    assert firsts == {"search_records", "search_conversation"}


def test_keywords_leave_out_question_words_and_keep_names() -> None:
    assert extract_keywords("When did Ana's goat go to Oslo?") == "Ana's goat go Oslo"
    assert extract_keywords("Who is it?") == "Who is it?"


def test_stored_demonstrations_come_back_and_feed_the_trainer_as_they_are(tmp_path: Path) -> None:
    made = [Demonstration(task_id="a", token_ids=(5, 6, 7), loss_mask=(0, 1, 1)), Demonstration(task_id="b", token_ids=(8, 9), loss_mask=(0, 1))]
    save_demonstrations(tmp_path / "d.parquet", made)
    assert load_demonstrations(tmp_path / "d.parquet") == made
    dataset = DemonstrationDataset(str(tmp_path / "d.parquet"), tokenizer=None, config={"max_length": 3})
    assert {name: values.tolist() for name, values in dataset[0].items()} == {"input_ids": [5, 6, 7], "position_ids": [0, 1, 2], "loss_mask": [0, 1, 1]}
    with pytest.raises(DataError, match="demonstration a: is too long.*at most 2"):
        DemonstrationDataset([str(tmp_path / "d.parquet")], tokenizer=None, config={"max_length": 2})
    with pytest.raises(DataError, match="cannot be read"):
        load_demonstrations(tmp_path / "none.parquet")


@pytest.mark.parametrize("mask", [(0, 0), (1, 1), (0,)])
def test_a_mask_that_would_train_on_nothing_or_on_the_text_before_is_refused(mask: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="Demonstration a"):
        Demonstration(task_id="a", token_ids=(5, 6), loss_mask=mask)
