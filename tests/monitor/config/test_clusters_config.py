"""Several clusters in one configuration: a table each, with what its probes do otherwise."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from monitor.config.config import Config, load
from monitor.errors import ConfigError
from tests.monitor.commands import offsetwatch
from tests.monitor.config.test_config import SECRET, written

TWO = """
data = "d"
[probes.writer]
rate = 7
count = 3
[clusters.orders-eu]
bootstrap = "a:1"
id = "EmAwCgU0SwerVkveuXrJTQ"
[clusters.orders-eu.security]
sasl.password = { file = "/no/such/file" }
[clusters.billing]
bootstrap = "b:1"
reachable_within = 3
[clusters.billing.probes.writer]
rate = 2
[clusters.billing.probes.transform]
count = 0
"""


def test_each_cluster_has_a_configuration_like_that_of_a_single_one(tmp_path: Path) -> None:
    orders, billing = load(written(tmp_path, TWO), {}).each()
    assert (orders.name, billing.name) == ("orders-eu", "billing")
    assert (orders.cluster.bootstrap, billing.cluster.bootstrap) == ("a:1", "b:1")
    assert (billing.cluster.reachable_within, orders.cluster.reachable_within) == (3, 15)
    assert (orders.probes.writer.rate, orders.probes.writer.count, orders.probes.transform.count) == (7, 3, 2)
    assert (billing.probes.writer.rate, billing.probes.writer.count, billing.probes.transform.count) == (2, 3, 0)
    assert (orders.journals, billing.journals) == (
        Path("d/journals/clusters/orders-eu"),
        Path("d/journals/clusters/billing"),
    )
    assert orders.job == billing.job, "the probe log and the tables are those of all"


def test_a_single_cluster_is_what_it_was() -> None:
    config = Config()
    assert config.each() == [config]
    assert (config.name, config.journals) == ("", Path(".offsetwatch/journals"))
    with pytest.raises(
        ConfigError, match="--cluster: there is no cluster x; there are none: the configuration has one"
    ):
        config.of("x")


def test_a_cluster_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--cluster: there is no cluster order; there are orders-eu, billing"):
        load(written(tmp_path, TWO), {}).of("order")


def test_the_environment_changes_a_cluster_that_the_file_names(tmp_path: Path) -> None:
    environment = {
        "OFFSETWATCH_CLUSTERS__ORDERS_EU__BOOTSTRAP": "c:9",
        "OFFSETWATCH_CLUSTERS__ORDERS_EU__SECURITY__SASL_USERNAME": "me",
        "OFFSETWATCH_CLUSTERS__BILLING__PROBES__WRITER__COUNT": "1",
        "OFFSETWATCH_PROBES__WRITER__RATE": "9",
    }
    config = load(written(tmp_path, TWO), environment)
    orders, billing = config.each()
    assert orders.cluster.bootstrap == "c:9"
    assert orders.cluster.security.keys() == {"sasl.password", "sasl.username"}
    assert (orders.probes.writer.rate, orders.probes.writer.count) == (9, 3)
    assert (billing.probes.writer.rate, billing.probes.writer.count) == (2, 1)
    variable = "OFFSETWATCH_CLUSTERS__ORDERS_EU__BOOTSTRAP"
    assert orders.named("cluster.bootstrap") == f"{variable}: clusters.orders-eu.bootstrap"
    assert billing.named("cluster.bootstrap") == f"{tmp_path / 'my.toml'}: clusters.billing.bootstrap"


WRONG_VARIABLES = [
    ("CLUSTERS__ORDERS__BOOTSTRAP", "the file names no orders in clusters; named there: orders-eu, billing"),
    ("CLUSTERS__ORDERS_EU__BOOTSTRP", "there is no key clusters.orders-eu.bootstrp; known here: bootstrap,"),
    ("CLUSTERS__ORDERS_EU", "clusters.orders-eu is a table, name a key in it: bootstrap,"),
    ("CLUSTERS__ORDERS_EU__PROBES__WRITER__RATE", "clusters.orders-eu.probes.writer.rate: input should be a valid"),
    ("CLUSTER__BOOTSTRAP", "cluster and clusters: give [cluster] where there is one, [clusters.NAME] for each"),
]


@pytest.mark.parametrize(("variable", "complaint"), WRONG_VARIABLES)
def test_what_is_wrong_in_the_environment(tmp_path: Path, variable: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(written(tmp_path, TWO), {f"OFFSETWATCH_{variable}": "x"})
    assert str(raised.value).startswith(f"OFFSETWATCH_{variable}: {complaint}")


A = "[clusters.a]\nbootstrap = 'a:1'\n"
WRONG_FILES = [
    (f"{A}[cluster]\nbootstrap = 'b:1'", "cluster and clusters: give [cluster] where there is one"),
    ("[clusters.a]", "clusters.a.bootstrap: field required"),
    ("[clusters.a]\nbootstrp = 'a:1'\nbootstrap = 'a:1'", "clusters.a.bootstrp: unknown key; did you mean bootstrap?"),
    ("[clusters.'a b']\nbootstrap = 'a:1'", "clusters: a cluster cannot be called 'a b': a name has up to 40 letters"),
    ("[clusters.'../a']\nbootstrap = 'a:1'", "clusters: a cluster cannot be called '../a': a name has up to 40"),
    (f"{A}[clusters.A]\nbootstrap = 'b:1'", "clusters: a and A are too much alike"),
    (f"{A}id = 'I'\n[clusters.b]\nbootstrap = 'b:1'\nid = 'I'", "clusters: a and b are the same cluster, I"),
    (f"{A}[clusters.a.probes.writer]\nrate = 'x'", "clusters.a.probes.writer.rate: input should be a valid number"),
    (f"{A}[clusters.a.probes.writer]\nrat = 1", "clusters.a.probes.writer.rat: unknown key; did you mean rate?"),
    (f"{A}[clusters.a.probes]\nwriter = 1", "clusters.a.probes.writer: input should be an object, not 1"),
    (f"{A}probes = 1", "clusters.a.probes: input should be an object, not 1"),
    ("clusters = 3", "clusters: input should be an object, not 3"),
    ("[clusters]\na = 3", "clusters.a: input should be an object, not 3"),
    (f"{A}security = 3", "clusters.a.security: must be a table of settings"),
    (
        f"{A}[clusters.a.security]\n'sasl.password' = ['{SECRET}']",
        "clusters.a.security.sasl.password: must be a string",
    ),
    (f"{A}sasl.password = '{SECRET}'", "clusters.a.sasl: unknown key"),
    (f"[clusters.security]\nsasl.password = '{SECRET}'", "clusters.security.bootstrap: field required"),
]


@pytest.mark.parametrize(("text", "complaint"), WRONG_FILES, ids=[text.replace("\n", " ") for text, _ in WRONG_FILES])
def test_what_is_wrong_in_a_file(tmp_path: Path, text: str, complaint: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load(file, {})
    assert raised.value.complaints[0].startswith(f"{file}: {complaint}")
    assert SECRET not in str(raised.value)


def test_what_is_wrong_for_all_clusters_is_said_once(tmp_path: Path) -> None:
    wrong = (
        "[probes.writer]\nrate = 'x'\n" + A + "[clusters.b]\nbootstrap = 'b:1'\n[clusters.b.probes.writer]\ncount = 'y'"
    )
    file = written(tmp_path, wrong)
    with pytest.raises(ConfigError) as raised:
        load(file, {})
    assert set(raised.value.complaints) == {
        f"{file}: probes.writer.rate: input should be a valid number, not 'x'",
        f"{file}: clusters.b.probes.writer.count: input should be a valid integer, not 'y'",
    }


def test_a_secret_is_named_by_its_cluster_and_never_shown(tmp_path: Path) -> None:
    text = f"{A}[clusters.a.security]\nsasl.password = '{SECRET}'\nssl.key.password = {{ env = 'NOT_SET' }}"
    config = load(written(tmp_path, text), {})
    (only,) = config.each()
    assert SECRET not in repr(config) + str(only) + only.model_dump_json()
    handed_on = pickle.loads(pickle.dumps(only))  # as to the process that runs its probes
    with pytest.raises(
        ConfigError, match=r"^clusters\.a\.security\.ssl\.key\.password: the environment variable NOT_SET"
    ):
        handed_on.cluster.secrets({})
    assert handed_on.journals == only.journals


UNREACHABLE = "[clusters.a]\nbootstrap = '127.0.0.1:9'\nreachable_within = 1\n[clusters.b]\nbootstrap = '127.0.0.1:9'\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("probe", "run", "--cluster", "c"), "--cluster: there is no cluster c; there are a, b"),
        (("probe", "drain", "--cluster", "c"), "--cluster: there is no cluster c; there are a, b"),
        (
            ("monitor", "--probes"),
            "clusters.b.security.sasl.password: no/such cannot be read: No such file or directory",
        ),
        (("probe", "run"), "clusters.b.security.sasl.password: no/such cannot be read: No such file or directory"),
    ],
)
def test_what_no_trying_mends_is_said_before_any_probe_starts(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    text = UNREACHABLE + "security.sasl.password = { file = 'no/such' }"
    (tmp_path / "offsetwatch.toml").write_text(text)
    done = offsetwatch(*words, cwd=tmp_path, OFFSETWATCH_ALERTS__METRICS_PORT="0")
    assert (done.returncode, done.stderr) == (2, f"offsetwatch: {said}\n")


def test_a_cluster_that_is_asked_for_alone_has_to_answer(tmp_path: Path) -> None:
    (tmp_path / "offsetwatch.toml").write_text(UNREACHABLE)
    done = offsetwatch("probe", "run", "--cluster", "a", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "offsetwatch: offsetwatch.toml: clusters.a.bootstrap: no broker answers at 127.0.0.1:9"
    )
    assert len(done.stderr.splitlines()) == 1
