"""A rollout server ends with its engine."""

import subprocess
import sys
from types import SimpleNamespace

from napmem_rl.backend.engine_watch import watch_engine

SERVER = """
import time
from types import SimpleNamespace
from napmem_rl.backend.engine_watch import watch_engine

class Engine:
    asked = 0
    @property
    def errored(self):
        self.asked += 1
        return self.asked > 1

assert watch_engine(SimpleNamespace(engine=Engine()))
time.sleep(60)
"""


def test_a_server_whose_engine_process_died_ends_and_says_so():
    done = subprocess.run([sys.executable, "-c", SERVER], capture_output=True, text=True, timeout=60, env={"PYTHONPATH": ":".join(sys.path)})
    assert done.returncode == 1, done.stderr
    assert "the engine process of this rollout server died" in done.stdout


def test_a_server_that_computes_in_its_own_process_has_nothing_to_watch():
    assert not watch_engine(SimpleNamespace())
    assert not watch_engine(SimpleNamespace(engine=None))
