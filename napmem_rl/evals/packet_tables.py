"""MemChain's packets of an evaluation as tables of text, for summary.md and report.html alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from napmem_rl.systems.memchain.packet import Action

Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]  # title, head, rows

_SHARES = {
    "parsed": "could be read (or was, asked again)",
    "asked_again": "asked for a second time",
    "has_evidence": "gave evidence",
    "strict_json": "j: one JSON object and nothing else",
    "schema_valid": "v: no fault of form",
    "ids_valid": "i: cites candidates alone",
    "trace_valid": "h: a trace without fault",
}
_SIZES = {
    "candidate_tokens": "tokens of candidates",
    "evidence_tokens": "tokens of evidence, what the answer model reads",
    "candidates_shown": "candidates",
    "evidence_statements": "statements of evidence",
    "retrieval_s": "seconds of retrieval",
    "packet_s": "seconds of the packet",
    "answer_s": "seconds of the answer",
}
_CITATIONS = {
    "precision": "precision of cited candidates",
    "recall": "recall of candidates with gold evidence",
    "f1": "F1 of both",
    "gold_among_candidates": "gold messages that are among the candidates",
}


def list_packet_tables(packets: Mapping[str, Any]) -> list[Table]:
    """Tables of what `summarise_packets` gave; none where there are no packets. A table without rows is to be left out."""
    if not packets:
        return []
    shares = [(said, f"{packets['shares'][name]:.3f}") for name, said in _SHARES.items() if name in packets["shares"]]
    spreads = packets["sizes"] | packets["seconds"]
    sizes = [(said, *(f"{spreads[name][column]:.4g}" for column in ("mean", "p50", "p95"))) for name, said in _SIZES.items() if name in spreads]
    citations = [(said, f"{packets['citations'][name]:.3f}") for name, said in _CITATIONS.items() if name in packets["citations"]]
    origins = ", ".join(f"{count} {origin}" for origin, count in packets["origins"].items())
    return [
        (f"Packets ({packets['n']}; evidence from: {origins})", ("share of packets", "value"), shares),
        ("Actions by type of question", ("type", "n", "a packet", *map(str, Action)), [_render_actions(*item) for item in packets["actions"].items()]),
        ("Sizes and seconds of a question", ("", "mean", "median", "95th percentile"), sizes),
        (f"Citations, over {packets['citations'].get('n', 0)} questions with gold evidence", ("", "value"), citations),
        ("Faults", ("reason", "faults", "packets"), [(name, str(one["faults"]), str(one["packets"])) for name, one in packets["faults"].items()]),
    ]


def _render_actions(category: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    shares = (f"{found['shares'][str(action)]:.0%}" if found["shares"] else "–" for action in Action)
    return (category, str(found["n"]), f"{found['per_packet']:.2f}", *shares)
