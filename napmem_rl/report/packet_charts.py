"""Curves of MemChain's packets (arXiv 2607.24097, appendices A.2 and A.6): the reward's signals, what packets do with candidates, sizes, seconds."""

from __future__ import annotations

from collections.abc import Callable

from napmem_rl.report.charts import LINE, STACK, Chart
from napmem_rl.systems.memchain.facts import (
    ACTIONS,
    ANSWER_S,
    CANDIDATE_TOKENS,
    EVIDENCE_TOKENS,
    HAS_EVIDENCE,
    PACKET_S,
    PARSED,
    RETRIEVAL_S,
)
from napmem_rl.systems.memchain.packet import Action
from napmem_rl.systems.memchain.reward import GATE_WEIGHTS, REWARD_WEIGHTS

_SHORT = {"correctness": "c", "stability": "s", "citations": "t", "support": "e", "strict_json": "j", "schema_valid": "v", "ids_valid": "i", "trace_valid": "h"}


def build_packet_charts(column: Callable[[str], list[float | None]]) -> list[Chart]:
    """The charts of packets, in order; those without any value hold no series.

    Args:
        column: the values of a metric by step, None where it was not logged.
    """

    def build(name: str, title: str, about: str, *labelled: tuple[str, str], kind: str = LINE, unit: str = "", high: float | None = None) -> Chart:
        chart = Chart(name=name, title=title, about=about, kind=kind, unit=unit, low=0, high=high)
        for label, metric in labelled:
            chart.add(label, column(f"napmem/{metric}"))
        return chart

    signals = [(f"{_SHORT[name]}, {name.replace('_', ' ')}", name) for name in REWARD_WEIGHTS]
    gates = [(f"{_SHORT[name]}, {name.replace('_', ' ')}", name) for name in GATE_WEIGHTS]
    readable = [("can be read", PARSED), ("gives evidence", HAS_EVIDENCE)]
    sizes = [("candidates", CANDIDATE_TOKENS), ("evidence", EVIDENCE_TOKENS)]
    seconds = [("retrieval", RETRIEVAL_S), ("packet", PACKET_S), ("answer and judge", ANSWER_S)]
    charts = [
        build("signals", "Signals of the packet reward", "Means over packets: c, s, t and e of equation 16.", *signals, high=1),
        build(
            "gates",
            "Structure of packets",
            "Shares of packets: j, v, i, h of equation 15, and more.",
            *gates,
            *readable,
            high=1,
        ),
        build("actions", "Actions of a packet", "What is done with candidates; the height is all actions.", *_list_actions(), kind=STACK),
        build("sizes", "Evidence against candidates", "What the policy reads and what the answer model reads, means.", *sizes, unit="tokens"),
        build(
            "latency",
            "Seconds of a question",
            "Means over packets, many of which are made at once.",
            *seconds,
            kind=STACK,
            unit="s",
        ),
    ]
    is_of_packets = any(value is not None for value in column(f"napmem/{PARSED}"))
    return charts if is_of_packets else []


def _list_actions() -> list[tuple[str, str]]:
    return [(str(action), ACTIONS.format(action=action)) for action in Action]
