"""Jobs that share a cluster do not share a queue."""

from types import SimpleNamespace

import pytest

from napmem_rl.backend.job_names import JOB_VARIABLE, separate_queue


@pytest.fixture
def interface() -> SimpleNamespace:
    """As much of TransferQueue's module as is turned: calls come back as they arrive."""
    ray = SimpleNamespace(get_actor=lambda name, namespace=None: (name, namespace), get=lambda reference: reference)
    return SimpleNamespace(ray=ray, TransferQueueController=SimpleNamespace(options=lambda **options: options, remote="as it is"))


def test_each_job_has_its_controller_in_a_namespace_of_its_own(interface, monkeypatch):
    monkeypatch.setenv(JOB_VARIABLE, "abc")
    for _ in range(2):
        separate_queue(interface)
        assert interface.ray.get_actor("TransferQueueController", namespace="transfer_queue") == ("TransferQueueController", "transfer_queue_abc")
        assert interface.TransferQueueController.options(name="n", namespace="transfer_queue") == {"name": "n", "namespace": "transfer_queue_abc"}
    assert interface.ray.get(3) == 3 and interface.TransferQueueController.remote == "as it is"


def test_outside_a_job_nothing_is_turned(interface, monkeypatch):
    monkeypatch.delenv(JOB_VARIABLE, raising=False)
    before = dict(vars(interface))
    separate_queue(interface)
    assert vars(interface) == before
