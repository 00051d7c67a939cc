"""How people call clusters, and that no two names are one cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.config.config import Config, load
from monitor.config.names import READ_AGAIN, ClusterNames, only, record
from monitor.errors import ConfigError, UserError
from tests.monitor.config.test_config import written

TWO = """
data = "{data}"
[clusters.orders-eu]
bootstrap = "a:1"
id = "pinned"
[clusters.billing]
bootstrap = "b:1"
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load(written(tmp_path, TWO.format(data=tmp_path / "data")), {})


def test_a_name_is_known_from_the_configuration_or_once_the_cluster_was_reached(config: Config) -> None:
    now = [0.0]
    names = ClusterNames(config, lambda: now[0])
    assert (names("pinned"), names("found"), names("")) == ("orders-eu", "", "")
    record(config.of("billing"), "found")
    now[0] += READ_AGAIN + 1
    assert names("found") == "billing"
    record(config.of("billing"), "another")
    assert ClusterNames(config)("found") == "", "the name is that of another cluster now"
    assert ClusterNames(config)("another") == "billing"


def test_a_cluster_that_is_taken_out_keeps_its_name_and_one_that_is_renamed_has_the_new_one(config: Config) -> None:
    record(config.of("billing"), "found")
    text = TWO.format(data=config.data).partition("[clusters.billing]")[0]
    taken_out = load(written(config.data.parent, text), {})
    names = ClusterNames(taken_out)
    assert (names("found"), names.resolve("billing", [])) == ("billing", "found")
    renamed = load(written(config.data.parent, text + '[clusters.paying]\nbootstrap = "b:1"\n'), {})
    record(renamed.of("paying"), "found")
    assert ClusterNames(renamed)("found") == "paying"
    with pytest.raises(ConfigError, match="--cluster: there is no cluster billing"):
        only(taken_out, "billing")


def test_without_names_nothing_is_called_anything(tmp_path: Path) -> None:
    config = Config(data=tmp_path)
    record(config, "id")
    assert ClusterNames(config)("id") == ""
    assert not (tmp_path / "clusters").exists()


def test_a_cluster_is_meant_by_its_name_or_its_id(config: Config) -> None:
    names = ClusterNames(config)
    assert names.resolve("orders-eu", []) == names.resolve("pinned", []) == "pinned"
    assert names.resolve("of-the-tables", ["", "of-the-tables"]) == "of-the-tables"
    assert only(config, "billing").name == "billing"
    assert only(config, "pinned").name == "orders-eu"
    with pytest.raises(UserError, match="--cluster: billing has not been reached yet"):
        names.resolve("billing", [])
    with pytest.raises(UserError, match="--cluster: nothing is known of a cluster order; known are: orders-eu, x"):
        names.resolve("order", ["x", "pinned"])
    with pytest.raises(ConfigError, match="--cluster: there is no cluster order; there are orders-eu, billing"):
        only(config, "order")


def test_another_cluster_than_was_asked_for_is_refused(config: Config) -> None:
    said = r"my\.toml: clusters\.orders-eu\.id: the cluster at a:1 has the id other, not pinned"
    with pytest.raises(ConfigError, match=said):
        record(config.of("orders-eu"), "other")


def test_two_names_of_one_cluster_are_refused_with_both_names(config: Config) -> None:
    record(config.of("orders-eu"), "pinned")
    said = "clusters.orders-eu and clusters.billing are the same cluster, pinned: only one of them can be watched"
    with pytest.raises(ConfigError, match=said):
        record(config.of("billing"), "pinned")
    assert ClusterNames(config)("pinned") == "orders-eu"


def test_a_name_that_was_given_to_another_cluster_takes_nothing(tmp_path: Path, config: Config) -> None:
    """What `billing` was called then is `archive` now, and `billing` has not been reached at its new addresses."""
    record(config.of("billing"), "found")
    text = TWO.format(data=tmp_path / "data").replace("b:1", "new:1") + "[clusters.archive]\nbootstrap = 'b:1'\n"
    changed = load(written(tmp_path, text), {})
    record(changed.of("archive"), "found")
    assert ClusterNames(changed)("found") == "archive"
