import json

import numpy as np
import pytest
from safetensors.numpy import save_file

pytest.importorskip("verl")

from napmem_rl.backend.checkpoints import repair_export


def test_an_export_names_the_dtype_of_its_weights_and_no_attention_of_ours(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "llama", "dtype": "bfloat16", "attn_implementation": "napmem_varlen", "attention_bias": False}))
    save_file({"weight": np.zeros(3, dtype=np.float32)}, tmp_path / "model.safetensors")
    repair_export(config)
    assert json.loads(config.read_text()) == {"model_type": "llama", "dtype": "float32", "attention_bias": False}


def test_weights_of_mixed_dtypes_leave_the_named_one_alone(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"dtype": "bfloat16"}))
    save_file({"a": np.zeros(3, dtype=np.float32), "b": np.zeros(3, dtype=np.float16)}, tmp_path / "model.safetensors")
    repair_export(config)
    assert json.loads(config.read_text()) == {"dtype": "bfloat16"}
