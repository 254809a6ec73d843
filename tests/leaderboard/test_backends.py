"""Local, ray and dask: the same bytes, and clear words where one is missing."""

import importlib.util
import sys

import pytest

from pacer_gym.leaderboard.backends import BackendError, check_backend, open_backend
from pacer_gym.leaderboard.score import score
from tests.leaderboard.tiny import tiny_setting


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    return score("srpf", setting=tiny_setting(), store=tmp_path_factory.mktemp("local"), n_jobs=1).to_json()


def test_the_number_of_processes_changes_nothing(local, tmp_path):
    assert score("srpf", setting=tiny_setting(), store=tmp_path, n_jobs=2).to_json() == local


@pytest.mark.slow
@pytest.mark.parametrize(("name", "package"), [("ray", "ray"), ("dask", "distributed")])
def test_a_cluster_computes_the_same_to_the_byte(local, tmp_path, name, package):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f'{package} is not installed: pip install "pacer-gym[{name}]"')
    found = score("srpf", setting=tiny_setting(), store=tmp_path, backend=name, n_jobs=2)
    assert found.to_json() == local


@pytest.mark.parametrize(("name", "package"), [("ray", "ray"), ("dask", "distributed")])
def test_a_backend_that_is_not_installed_names_its_extra(monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BackendError, match=rf'pip install "pacer-gym\[{name}\]"'):
        check_backend(name)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"name": "dsak"}, "no backend 'dsak' .did you mean 'dask'"),
        ({"name": "local", "address": "tcp://1.2.3.4:8786"}, "is of a cluster"),
        ({"name": "local", "n_jobs": 0}, "from 1 to 1024, or -1"),
        ({"name": "local", "n_jobs": -2}, "from 1 to 1024, or -1"),
    ],
)
def test_what_is_no_backend_is_refused(arguments, told):
    with pytest.raises((BackendError, ValueError), match=told):
        check_backend(**arguments)
    with pytest.raises((BackendError, ValueError), match=told), open_backend(**arguments):
        pass


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_is_said_so():
    pytest.importorskip("distributed", reason='distributed is not installed: pip install "pacer-gym[dask]"')
    with (
        pytest.raises(BackendError, match="no dask cluster at"),
        open_backend("dask", address="tcp://127.0.0.1:9"),
    ):
        pass
