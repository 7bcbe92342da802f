"""Chat exports into one bank: read, told apart from what is there, and built in the order of time. It can be stopped anywhere, and repeated.

Two steps. First everything is read, and sessions are kept in a file without a name (`spool`): whatever is wrong with the input shows before the bank is touched.
Then session after session goes to the builder, which commits each; a second run passes over what the bank has. So a run that was killed is gone on with by the
same command, and the bank ends as it would have without the stop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from napmem_rl.data.chat_exports.accounts import choose_account, find_name, read_users
from napmem_rl.data.chat_exports.conversation import Conversation
from napmem_rl.data.chat_exports.detect import FORMATS, JSON_FORMATS, JsonFormat, detect_format, find_json_format
from napmem_rl.data.chat_exports.files import ExportFile, find_files
from napmem_rl.data.chat_exports.json_stream import read_items
from napmem_rl.data.chat_exports.placing import GAP_HOURS, PlacedSession, Placing
from napmem_rl.data.chat_exports.spool import Spool
from napmem_rl.data.chat_exports.tally import LeftOut, LostConversation, Note, Tally
from napmem_rl.data.chat_exports.whatsapp import FORMAT as WHATSAPP
from napmem_rl.errors import BankError, BudgetError, DataError
