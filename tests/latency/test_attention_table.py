"""Attention by table: exact at its points, linear between them, and never less for more."""

import json
from dataclasses import replace

import numpy as np
import pytest

from pacer_gym.errors import ProfileError
from pacer_gym.latency.attention_table import (
    attention_s,
    bordered,
    check_table,
    read_table,
    slower_table,
    table_from_json,
    table_to_json,
)
from pacer_gym.latency.profiles import Profile, load_profile
from pacer_gym.latency.step_time import StepTime

COUNT, WORK = [1.0, 4.0, 10.0], [0.0, 100.0, 300.0]
SECONDS = [[1.0, 2.0, 2.0], [2.0, 4.0, 8.0], [2.0, 6.0, 9.0]]
TABLE = bordered(COUNT, WORK, SECONDS)
TRUTH = StepTime(
    knot_tokens=[1.0, 2.0],
    knot_s=[1.0, 1.0],
    coefficients=np.zeros(7),
    residuals=[1.0],
    decode_attention=TABLE,
    prefill_attention=slower_table(TABLE, 2.0),
)


@pytest.mark.parametrize(
    ("count", "work", "seconds"),
    [
        (4, 100.0, 4.0),
        (2.5, 100.0, 3.0),  # halfway between two rows
        (4, 200.0, 6.0),  # and between two columns
        (2.5, 50.0, 2.25),  # (1.5 + 3) / 2
        (0.5, 0.0, 1.0),  # flat before the first
        (10, 500.0, 12.0),  # beyond the last as steep as there
        (16, 0.0, 2.0),
        (22, 100.0, 10.0),
    ],
)
def test_a_time_is_read_off_between_the_points_as_computed_by_hand(count, work, seconds):
    assert read_table(TABLE, count, work) == pytest.approx(seconds, rel=1e-15)
    assert read_table(TABLE, count, work) == read_table.py_func(TABLE, count, work)


def test_no_step_with_more_to_do_is_shorter():
    counts, works = np.arange(1, 15), np.linspace(0.0, 500.0, 60)
    times = np.array([[read_table(TABLE, count, work) for work in works] for count in counts])
    assert (np.diff(times, axis=0) >= 0.0).all()
    assert (np.diff(times, axis=1) >= 0.0).all()


def test_a_step_has_the_attention_of_its_decodes_and_of_its_prompts():
    # 4 decodes of 100 bytes, 6 prompt tokens of 200 FLOP.
    step = np.array([1.0, 10.0, 1200.0, 7.0, 400.0, 3.0, 5.0])
    prompts_s = 2.0 * read_table(TABLE, 6, 200.0)
    for compute in (attention_s, attention_s.py_func):
        assert compute(step, 4, TABLE, slower_table(TABLE, 2.0)) == 4.0 + prompts_s
        assert compute(np.array([1.0, 4.0, 0, 0, 400.0, 0, 4.0]), 4, TABLE, TABLE) == 4.0
        assert compute(np.array([1.0, 4.0, 400.0, 0, 0, 0, 1.0]), 0, TABLE, TABLE) == 4.0
    np.testing.assert_array_equal(TRUTH.mean_s(step[None], [4]), [5.0 + prompts_s])


def test_step_times_by_table_need_to_know_the_decodes():
    step = np.ones((2, 7))
    for decodes in (None, [1]):
        with pytest.raises(ValueError, match="takes the decodes of 2 steps"):
            TRUTH.mean_s(step, decodes)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (bordered([1.0, 1.0], [0.0, 1.0], np.ones((2, 2))), "axes that ascend"),
        (bordered([1.0, 2.0], [-1.0, 1.0], np.ones((2, 2))), "axes that ascend from 0 or more"),
        (bordered([1.0, 2.0], [0.0, 1.0], [[1.0, 1.0], [0.5, 1.0]]), "must not descend"),
        (bordered([1.0, 2.0], [0.0, 1.0], [[1.0, 0.5], [1.0, 1.0]]), "must not descend"),
        (bordered([1.0, 2.0], [0.0, 1.0], [[0.0, 1.0], [1.0, 1.0]]), "positive times"),
        (bordered([1.0, 2.0], [0.0, np.nan], np.ones((2, 2))), "finite"),
        (bordered([1.0], [0.0, 1.0], np.ones((1, 2))), "two by two or more"),
        (np.ones(3), "two by two or more"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(table, message):
    with pytest.raises(ValueError, match=message):
        check_table(table, "decode_attention")


def test_one_table_without_the_other_is_refused():
    with pytest.raises(ValueError, match="one for prompts, or none"):
        replace(TRUTH, prefill_attention=np.empty((0, 0)))


def test_a_table_survives_json_and_damage_is_told():
    data = json.loads(json.dumps(table_to_json(TABLE)))
    assert table_from_json(data, "decode_attention").tobytes() == TABLE.tobytes()
    with pytest.raises(ProfileError, match="3 rows, one a count"):
        table_from_json(data | {"seconds": SECONDS[:2]}, "decode_attention")
    with pytest.raises(ProfileError, match="3 numbers in every row"):
        table_from_json(data | {"seconds": [[1.0], [1.0], [1.0]]}, "decode_attention")
    with pytest.raises(ProfileError, match="missing keys: count"):
        table_from_json({key: data[key] for key in ("work_of_each", "seconds")}, "decode_attention")


def test_a_slower_table_keeps_its_axes():
    slower = slower_table(TABLE, 3.0)
    assert slower[1:, 0].tolist() == COUNT
    assert slower[0, 1:].tolist() == WORK
    assert slower[1:, 1:].tolist() == (3.0 * TABLE[1:, 1:]).tolist()


def test_a_profile_with_tables_survives_json_and_has_its_own_schema_version():
    shipped = load_profile("cpu-smollm2-135m")
    with pytest.raises(ProfileError, match="has schema version 2, and one without has 1; got 1"):
        replace(shipped, truth=TRUTH)
    made = replace(shipped, truth=TRUTH, schema_version=2)
    back = Profile.from_json(made.to_json())
    assert back.to_json() == made.to_json()
    assert back.truth.prefill_attention.tobytes() == slower_table(TABLE, 2.0).tobytes()
    with pytest.raises(ProfileError, match="and one without has 1; got 2"):
        replace(shipped, schema_version=2)
