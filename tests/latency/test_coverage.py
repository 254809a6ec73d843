"""Steps that cannot tell a feature's cost are told apart from those that can."""

from dataclasses import replace

import numpy as np
import pytest

from pacer_gym.latency.coverage import feature_coverage
from pacer_gym.latency.features import FEATURE_NAMES
from tests.latency.made_steps import SHAPE, write_steps


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_steps(tmp_path_factory.mktemp("steps") / "steps.csv", 1200)


def complaints(table, **arguments):
    found = {feature.name: feature.complaint for feature in feature_coverage(table, SHAPE, **arguments)}
    return {name: complaint for name, complaint in found.items() if complaint is not None}


def test_steps_that_vary_in_everything_cover_everything(table):
    assert complaints(table) == {}
    assert [feature.name for feature in feature_coverage(table, SHAPE)] == [
        name for name in FEATURE_NAMES if name not in ("steps", "padding_tokens")
    ]


def test_a_feature_that_moves_with_another_is_named(table):
    same_context = replace(table, decode_kv_tokens=200 * table.decodes, chunks=np.ones_like(table.chunks))
    found = complaints(same_context)
    assert set(found) == {"decode_kv_bytes", "sequences"}
    assert found["sequences"].startswith("sequences moves with the other features: 0.0% of it is its own")


def test_a_feature_that_hardly_varies_is_named(table):
    decodes = 20 + np.arange(len(table)) % 3
    found = complaints(replace(table, decodes=decodes, chunks=0 * table.chunks))
    assert (
        found["sequences"] == "sequences hardly varies: nine tenths of its values lie within a factor of 1.1"
    )


def test_a_feature_that_is_rarely_there_is_named(table):
    rare = np.where(np.arange(len(table)) < 20, table.context_tokens + 1, 0)
    found = complaints(replace(table, context_tokens=rare))
    assert found["prefill_context_bytes"] == "prefill_context_bytes is above 0 in only 20 steps"


def test_padding_counts_where_the_engine_pads(table):
    assert complaints(table, batch_buckets=[1, 2, 4, 8, 16, 32, 64, 128, 256]) == {}
    names = [feature.name for feature in feature_coverage(table, SHAPE, [1, 8, 64, 512])]
    assert "padding_tokens" in names


def test_own_share_is_what_no_other_feature_explains(table):
    """Half of a column's squared length lies along another column: by hand, with two columns."""
    from pacer_gym.latency.coverage import _own_share

    design = np.array([[1.0, 1.0], [0.0, 1.0]])
    assert _own_share(design, 1) == pytest.approx(0.5)
    assert _own_share(design[:, ::-1] * [3.0, 7.0], 1) == pytest.approx(0.5)


def test_no_steps_are_refused(table):
    with pytest.raises(ValueError, match="coverage needs steps, got none"):
        feature_coverage(table.select(slice(0, 0)), SHAPE)
