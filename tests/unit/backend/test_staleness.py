import pytest

from napmem_rl.backend import metric_names as names
from napmem_rl.backend.staleness import compute_staleness
from napmem_rl.errors import StaleWeightsError


def test_staleness_is_counted_from_the_oldest_weights_of_a_row():
    metrics = compute_staleness([(4, 4), (2, 4), (3, 3), (3, 4)], current=4, limit=2)
    assert metrics == {names.STALENESS_MEAN: 1.0, names.STALENESS_MAX: 2.0, names.SPANNING_FRACTION: 0.5}


def test_a_row_beyond_the_limit_is_an_error_and_without_a_limit_none_is():
    with pytest.raises(StaleWeightsError, match="3 versions behind.*at most 2"):
        compute_staleness([(4, 4), (1, 4)], current=4, limit=2)
    assert compute_staleness([(1, 4)], current=4, limit=None)[names.STALENESS_MAX] == 3


@pytest.mark.parametrize("versions", [(None, None), (3, 2), (3, 5)])
def test_versions_that_cannot_be_are_an_error(versions):
    with pytest.raises(StaleWeightsError, match="impossible weight versions"):
        compute_staleness([versions], current=4, limit=None)


def test_a_batch_without_rows_has_no_staleness():
    assert compute_staleness([], current=4, limit=0) == {}
