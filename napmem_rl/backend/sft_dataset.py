"""Demonstrations as verl's SFT trainer reads them (`data.custom_cls`): tokens and masks as stored, nothing rendered or tokenised again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from napmem_rl.data.demonstrations import load_demonstrations
from napmem_rl.errors import DataError


class DemonstrationDataset(Dataset):
    """Items are dicts of `input_ids`, `position_ids` and `loss_mask`, each [L] int64 and unpadded (verl's `pad_mode: no_padding`).

    verl packs a batch and moves the flattened mask one place to the left, so the mask of a first token would fall on the text before it:
    `Demonstration` refuses such masks.
    """

    def __init__(self, parquet_files: str | Sequence[str], tokenizer: Any, config: Mapping[str, Any], processor: Any = None, max_samples: int = -1) -> None:
        """Read the files. `tokenizer` and `processor` are verl's to pass and not needed.

        Raises:
            DataError: unreadable files; a demonstration longer than `config.max_length`, which is never cut silently.
        """
        files = [parquet_files] if isinstance(parquet_files, str) else list(parquet_files)
        rows = [row for file in files for row in load_demonstrations(Path(file))]
        self._rows = rows[:max_samples] if max_samples > 0 else rows
        for row in self._rows:
            if len(row.token_ids) > config["max_length"]:
                got = f"{len(row.token_ids)} tokens"
                raise DataError.of(f"demonstration {row.task_id}", "is too long", got=got, expected=f"at most {config['max_length']} (data.max_length)")

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = self._rows[index]
        return {
            "input_ids": torch.tensor(row.token_ids),
            "position_ids": torch.arange(len(row.token_ids)),
            "loss_mask": torch.tensor(row.loss_mask),
        }
