"""`napmem serve-mcp`: a memory bank for any assistant that speaks the Model Context Protocol."""

from __future__ import annotations

import argparse
import asyncio
import functools
import logging
import os
import secrets
import sys
from pathlib import Path
from typing import Any

from napmem_rl.errors import ConfigError

TOKEN_VARIABLE = "NAPMEM_MCP_TOKEN"


def add_mcp_command(areas: Any) -> None:
    """Add the command to the parser's areas."""
    serve = areas.add_parser("serve-mcp", help="offer a bank's tools to an assistant, by the Model Context Protocol")
    serve.add_argument("bank", type=Path, metavar="BANK", help="directory of one user's bank; the server knows no other")
    serve.add_argument("--http", type=_port, metavar="PORT", help=f"streamable HTTP on 127.0.0.1 instead of stdin and stdout; ${TOKEN_VARIABLE} sets its token")
    serve.add_argument("--allow-writes", action="store_true", help="also offer the tool `remember`, which adds messages; without it nothing can be written")
    serve.add_argument("--encoder", default="none", help="search by meaning too: minilm, hashing or a model path (default: %(default)s, words alone)")
    serve.add_argument("--top-k", type=int, default=8, metavar="K", help="items that a search returns (default: %(default)s)")
    serve.add_argument("--max-result-tokens", type=int, default=2048, metavar="N", help="of one result, guessed from its bytes (default: %(default)s)")
    serve.set_defaults(run=run_serve_mcp)


def run_serve_mcp(args: argparse.Namespace) -> int:
    """Serve until the client closes the connection, or the process is asked to end."""
    try:
        from napmem_rl.assistant import mcp_server  # an optional extra, and seconds of imports
    except ImportError as error:
        fix = "Install the extra: pip install 'napmem-rl[mcp]'."
        raise ConfigError.of("napmem serve-mcp", f"needs the official SDK of the Model Context Protocol ({error})", fix=fix) from error
    from napmem_rl.assistant.live_bank import LiveBank
    from napmem_rl.memory.bank import MemoryBank
    from napmem_rl.retrieval.encoder import load_encoder
    from napmem_rl.tools.memory_tools import ToolLimits

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="napmem serve-mcp: %(message)s")
    limits = ToolLimits(top_k=args.top_k, max_result_tokens=args.max_result_tokens, max_episode_tokens=args.max_result_tokens)
    bank = LiveBank(args.bank, open_bank=functools.partial(MemoryBank.open, encoder=load_encoder(args.encoder)))
    server = mcp_server.build_server(mcp_server.BankTools(bank, limits=limits, allow_writes=args.allow_writes))
    access = "read and add to" if args.allow_writes else "read only"
    print(f"napmem serve-mcp: bank {bank.bank_id!r} in {bank.path}, {access}", file=sys.stderr, flush=True)
    try:
        if args.http is None:
            asyncio.run(mcp_server.serve_stdio(server))
        else:
            token = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
            shown = f"the token of ${TOKEN_VARIABLE}" if os.environ.get(TOKEN_VARIABLE) else token
            print(f"napmem serve-mcp: http://127.0.0.1:{args.http}/mcp with the header Authorization: Bearer {shown}", file=sys.stderr, flush=True)
            mcp_server.serve_http(server, port=args.http, token=token)
    except KeyboardInterrupt:
        return 130
    return 0


def _port(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"got {number}, expected a port from 1 to 65535")
    return number
