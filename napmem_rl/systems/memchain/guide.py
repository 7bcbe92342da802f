"""Guided decoding: the JSON Schema that a policy's engine is bound to, so that it can write nothing but a packet over its candidates. For evaluation alone.

Under a schema the policy samples from another distribution than its own: in training log-probs and ratios would speak of one, and rollouts come from the other.
`memchain.guided` is therefore refused there. A guided packet has no thinking before it, and rules between items (KEEP and DROP of one id, the same entry twice)
are still the parser's to find.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from napmem_rl.systems.memchain.packet import PacketForm, build_packet_schema

_NOT_TAKEN = ("uniqueItems",)  # by xgrammar (vLLM) and by strict schemas of OpenAI


def build_guide(form: PacketForm, candidate_ids: Sequence[str]) -> dict[str, Any] | None:
    """The schema of a packet as engines take it: every field required, no `uniqueItems`, and ids that are candidates.

    None where there are no candidates: every step and statement cites one, so that no packet fits, and the policy writes as it likes.

    Args:
        form: the parts of a packet.
        candidate_ids: as the policy reads them.
    """
    return _simplify(build_packet_schema(form, candidate_ids)) if candidate_ids else None


def _simplify(schema: Any) -> Any:
    """Without what engines refuse: of an object only the fields that are required, which leaves out the statement of KEEP and DROP that nobody reads."""
    if isinstance(schema, list):
        return [_simplify(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {name: _simplify(part) for name, part in schema.items() if name not in _NOT_TAKEN}
    if schema.get("type") == "object":
        kept["properties"] = {name: kept["properties"][name] for name in schema["required"]}
    return kept
