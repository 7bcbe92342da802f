"""The quickstart's policy: a Llama of about a million parameters with a word-level tokenizer.

Everything around it is the ordinary stack: a HuggingFace directory, a chat template, Hermes tool calls. Only the vocabulary is special. The fixed text of
each tool call, such as ``<tool_call>\\n{"name": "search_records", "arguments": {"query": "``, is one added token, so that a small model spends its capacity
on what to look for and not on spelling JSON. The chat template leaves out system prompt and tool schemas, which a model of this size cannot read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

from napmem_rl.algos.packing import PACKED_ATTENTION, register_packed_attention
from napmem_rl.tools.spec import MEMORY_TOOLS

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

PAD, UNKNOWN, END = "<|pad|>", "<|unk|>", "<|end|>"
USER, ASSISTANT, TOOL = "<|user|>", "<|assistant|>", "<|tool|>"
ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"
STRING_SUFFIX, LIST_SUFFIX = '"}}\n</tool_call>', '"]}}\n</tool_call>'
WORD = r"\d{4}-\d{2}-\d{2}|(?:msg|rec|trk):\w+|[\w-]+\.md|[\w']+|[^\w\s]"
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message.role in ('user', 'assistant', 'tool') -%}"
    "{{ '<|' + message.role + '|>' + message.content + '<|end|>' }}"
    "{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}"
)


def call_prefixes() -> dict[str, str]:
    """Tool name -> the text of its call up to the argument's value, as Hermes writes it."""
    prefixes = {}
    for tool in MEMORY_TOOLS:
        ((argument, schema),) = tool.parameters["properties"].items()
        opening = '["' if schema["type"] == "array" else '"'
        prefixes[tool.name] = f'<tool_call>\n{{"name": "{tool.name}", "arguments": {{"{argument}": {opening}'
    return prefixes


def build_tokenizer(texts: Iterable[str], *, max_length: int, plain: Sequence[str] | None = None) -> PreTrainedTokenizerFast:
    """A word-level tokenizer that knows every word of `texts`; other words become `<|unk|>`.

    Args:
        texts: everything the policy may read or write: questions, tool results, answers.
        max_length: the longest context, in tokens.
        plain: fixed texts that are one token each; those of NapMem's answers and tool calls unless given.
    """
    from transformers import PreTrainedTokenizerFast

    controls = [PAD, UNKNOWN, END, USER, ASSISTANT, TOOL]
    fixed = [ANSWER_OPEN, ANSWER_CLOSE, STRING_SUFFIX, LIST_SUFFIX, *call_prefixes().values()] if plain is None else list(plain)
    splitter = pre_tokenizers.Split(Regex(WORD), behavior="removed", invert=True)
    words = sorted({word for text in texts for word, _ in splitter.pre_tokenize_str(text)})
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys([*controls, *fixed, *words]))}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    core.pre_tokenizer = splitter
    core.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in controls])
    core.add_tokens([AddedToken(token, normalized=False, special=False) for token in fixed])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=max_length,
    )


def build_model(tokenizer: PreTrainedTokenizerFast, *, seed: int, width: int = 128, layers: int = 4, heads: int = 4, ffn: int = 384) -> LlamaForCausalLM:
    """A randomly initialised fp32 Llama with tied embeddings that fits the tokenizer; runs with packed attention."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    register_packed_attention()
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=ffn,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=tokenizer.model_max_length,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        attn_implementation=PACKED_ATTENTION,
    )
    model = LlamaForCausalLM(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def save_policy(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, path: Path) -> None:
    """Write a HuggingFace directory that verl, vLLM and transformers load."""
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
