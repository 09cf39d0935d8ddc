# SPDX-License-Identifier: Apache-2.0
"""One cluster of Ray for all tests of the folder; under pytest-xdist one a worker."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
from bench.ray_cluster import lean_environment
from ray_hosts import Hosts

_clusters: list[Hosts] = []  # one at most


@pytest.fixture(scope="session", autouse=True)
def has_ray() -> None:
    found = importlib.util.find_spec("ray")
    if found is None or found.origin is None:  # this folder, of the same name
        pytest.skip("ray is not installed")


@pytest.fixture(autouse=True)
def lean(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test starts begins soon."""
    for name, value in lean_environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def cluster(has_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Hosts:
    """Stays until the folder's tests are over."""
    if not _clusters:
        _clusters.append(Hosts(tmp_path_factory.mktemp("hosts")))
    return _clusters[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    yield
    if nextitem is None or nextitem.path.parent != item.path.parent:
        _close()


def pytest_sessionfinish() -> None:
    _close()  # after --maxfail


def _close() -> None:
    while _clusters:
        _clusters.pop().close()


@pytest.fixture
def hosts(cluster: Hosts) -> Iterator[Hosts]:
    """Two hosts that have nothing yet but what they share with this machine."""
    cluster.begin()
    yield cluster
    cluster.end()


@pytest.fixture
def own_folders(cluster: Hosts) -> None:
    """Skips tests of hosts with folders of their own where this user cannot have them."""
    if cluster.why_shared:
        pytest.skip(cluster.why_shared)
