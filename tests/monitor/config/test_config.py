"""The configuration: its three sources, and one clear line for everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from monitor.config.config import Config, load
from monitor.errors import ConfigError
from monitor.options import loaded_by
from monitor.process.reach import connection, reach

SECRET = "hunter2-the-secret"


def written(folder: Path, text: str) -> Path:
    file = folder / "my.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_defaults_file_and_environment_in_that_order(tmp_path: Path) -> None:
    assert load(environment={}) == Config()
    file = written(tmp_path, "data = 'here'\n[probes.writer]\nrate = 7\ncount = 3\n[job.objectives]\ngrace = 2.5\n")
    environment = {
        "OFFSETWATCH_PROBES__WRITER__RATE": "500",
        "OFFSETWATCH_PROBES__RUN": "123",
        "OFFSETWATCH_PROBES__TRANSACTION__TIMEOUTS": "[3, 4.5]",
        "OFFSETWATCH_ALERTS__METRICS": "false",
        "OFFSETWATCH_CLUSTER__BOOTSTRAP": "a:1,b:2",
        "OTHER": "is none of ours",
    }
    config = load(file, environment)
    assert (config.probes.writer.rate, config.probes.writer.count) == (500, 3)
    assert config.probes.run == "123", "a key that wants text takes a number as it stands"
    assert config.probes.transaction.timeouts == (3, 4.5)
    assert config.alerts.metrics is False
    assert config.cluster.bootstrap == "a:1,b:2"
    assert config.job.objectives.objectives().grace == 2_500_000
    assert config.job.tables_path == Path("here/tables"), "the job's folder is the data folder"


def test_the_job_may_have_a_folder_of_its_own(tmp_path: Path) -> None:
    assert load(written(tmp_path, "data = 'a'\n[job]\nroot = 'b'\n"), {}).job.tables_path == Path("b/tables")


def test_where_the_file_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "offsetwatch.toml").write_text("data = 'current'")
    (tmp_path / "named.toml").write_text("data = 'named'")
    assert load(environment={}).data == Path("current")
    assert load(environment={"OFFSETWATCH_CONFIG": "named.toml"}).data == Path("named")
    assert load(tmp_path / "offsetwatch.toml", {"OFFSETWATCH_CONFIG": "named.toml"}).data == Path("current")


WRONG_FILES = [
    ("[probes.writer]\nrate = '500'", "probes.writer.rate: input should be a valid number, not '500'"),
    ("[probes]\nwritr = 1", "probes.writr: unknown key; did you mean writer?"),
    ("[alerts]\nzzz = 1", "alerts.zzz: unknown key; known here: metrics, metrics_host, metrics_port, probes_port"),
    ("nonsense = 1", "nonsense: unknown key; known here: data, cluster, clusters, evidence, probes, job, alerts"),
    ("data = 3", "data: input should be a valid string, not 3"),
    ("probes = 3", "probes: input should be an object, not 3"),
    ("[alerts]\nmetrics_port = 70000", "alerts.metrics_port: input should be less than or equal to 65535, not 70000"),
    ("[alerts]\nmetrics = 'yes'", "alerts.metrics: input should be a valid boolean, not 'yes'"),
    ("[job]\ndriver_memory = '2'", "job.driver_memory: string should match pattern '^[1-9][0-9]*[mg]$', not '2'"),
    (
        "[probes.transaction]\ntimeouts = [0.5]",
        "probes.transaction.timeouts: transaction timeouts are 1 to 86400 seconds",
    ),
    ("[probes.writer]\nrecord_bytes = 70", "probes: record_bytes 70 is too small for a tag in topic"),
    ("[cluster]\nsecurity = 3", "cluster.security: must be a table of settings"),
    ("[probes.writer]\nrate = inf", "probes.writer.rate: input should be less than or equal to 1000000, not inf"),
    ("[probes.transaction]\ntimeouts = [nan]", "probes.transaction.timeouts: transaction timeouts are 1 to 86400"),
    ("[probes.reader]\npoll_records = 1000001", "probes.reader.poll_records: input should be less than or equal to"),
    ("x = [", "is not TOML: "),
    ("[evidence]\ntopic = '..'", "evidence.topic: no topic of Kafka's can be called so"),
]


@pytest.mark.parametrize(("text", "complaint"), WRONG_FILES, ids=[text.replace("\n", " ") for text, _ in WRONG_FILES])
def test_what_is_wrong_in_a_file(tmp_path: Path, text: str, complaint: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        load(file, {})
    assert str(raised.value).startswith(f"{file}: {complaint}")
    assert "\n" not in str(raised.value)


def test_a_file_that_an_editor_has_marked_as_utf_8_is_read(tmp_path: Path) -> None:
    file = written(tmp_path, "\ufeffdata = 'here'")
    assert load(file, {}).data == Path("here")


def test_each_number_has_a_least_and_a_largest_value() -> None:
    """What is beyond them ends in an error of a library, or takes all memory."""

    def unbounded(name: str, kind: Any) -> Iterator[str]:
        if kind.get("type") in ("integer", "number"):
            least, largest = ({word, f"exclusive{word.capitalize()}"} & set(kind) for word in ("minimum", "maximum"))
            if not (least and largest):
                yield name
        for one in (*kind.get("anyOf", ()), *kind.get("prefixItems", ())):
            yield from unbounded(name, one)

    schema = Config.model_json_schema()
    tables = {"": schema, **schema["$defs"]}
    found = [
        one
        for table, told in tables.items()
        for name, kind in told.get("properties", {}).items()
        for one in unbounded(f"{table}.{name}", kind)
    ]
    assert not found


WRONG_VARIABLES = [
    ("OFFSETWATCH_PROBES__WRITER__RATE", "fast", "probes.writer.rate: input should be a valid number, not 'fast'"),
    (
        "OFFSETWATCH_PROBES__WRITER__RATE",
        "-5",
        "probes.writer.rate: input should be greater than or equal to 0.0001, not -5",
    ),
    (
        "OFFSETWATCH_PROBE__X",
        "1",
        "there is no key probe; known here: data, cluster, clusters, evidence, probes, job, alerts",
    ),
    ("OFFSETWATCH_PROBES__WRITER", "1", "probes.writer is a table, name a key in it: count,"),
    ("OFFSETWATCH_DATA__X", "1", "data is a value, it has no x"),
    ("OFFSETWATCH_ALERTS__METRICS", "maybe", "alerts.metrics: input should be a valid boolean, not 'maybe'"),
]


@pytest.mark.parametrize(("variable", "value", "complaint"), WRONG_VARIABLES)
def test_what_is_wrong_in_the_environment(variable: str, value: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(environment={variable: value})
    assert str(raised.value).startswith(f"{variable}: {complaint}")


@pytest.mark.parametrize("file", ["missing.toml", "."])
def test_a_file_that_cannot_be_read(file: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: "):
        load(tmp_path / file, {})


def test_security_settings_and_where_secrets_come_from(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(SECRET + "\n")
    file = written(
        tmp_path,
        f"""
        [cluster.security]
        security.protocol = "SASL_SSL"
        "sasl.username" = "me"
        sasl.password = {{ file = "{tmp_path}/password" }}
        ssl.key.password = {{ env = "KEY_PASSWORD" }}
        """,
    )
    environment = {"KEY_PASSWORD": SECRET, "OFFSETWATCH_CLUSTER__SECURITY__SASL_MECHANISM": "PLAIN"}
    config = load(file, environment)
    assert config.cluster.secrets(environment) == {
        "security.protocol": "SASL_SSL",
        "sasl.username": "me",
        "sasl.password": SECRET,
        "ssl.key.password": SECRET,
        "sasl.mechanism": "PLAIN",
    }


@pytest.mark.parametrize(
    ("key", "written_as"),
    [
        ("alerts.alertmanager.password", '"{}"'),
        ("alerts.alertmanager.token", '{{ env = ["{}"] }}'),
        ("alerts.webhook.secret", '{{ env = "A", file = "{}" }}'),
        ("status.token", '["{}"]'),
        ("alerts.chat.targets.0", '["{}"]'),
    ],
)
def test_a_secret_that_is_written_plainly_is_not_shown(key: str, written_as: str, tmp_path: Path) -> None:
    table, _, name = key.removesuffix(".0").rpartition(".")
    file = written(tmp_path, f"[{table}]\n{name} = {written_as.format(SECRET)}")
    with pytest.raises(ConfigError) as raised:
        load(file, {})
    assert str(raised.value) == f'{file}: {key}: must be {{ env = "NAME" }} or {{ file = "path" }}'


def test_secrets_of_librdkafka_and_of_a_store_that_stand_in_the_file_are_known_by_their_keys(tmp_path: Path) -> None:
    """They are taken, and `doctor` names them; one that a variable holds, or that says where it is, is none of them."""
    file = written(
        tmp_path,
        f"""
        [clusters.a]
        bootstrap = "a:1"
        [clusters.a.security]
        sasl.username = "me"
        sasl.password = "{SECRET}"
        ssl.key.pem = {{ env = "PEM" }}
        ssl.key.password = "replaced"
        [evidence.security]
        sasl.oauthbearer.client.secret = "{SECRET}"
        [storage]
        AWS_ACCESS_KEY_ID = "id"
        AWS_SECRET_ACCESS_KEY = "{SECRET}"
        """,
    )
    found = load(file, {"OFFSETWATCH_CLUSTERS__A__SECURITY__SSL_KEY_PASSWORD": SECRET}).plain_secrets()
    keys = ("clusters.a.security.sasl.password", "evidence.security.sasl.oauthbearer.client.secret")
    assert found == [f"{file}: {key}" for key in (*keys, "storage.AWS_SECRET_ACCESS_KEY")]


@pytest.mark.parametrize("variable", [True, False])
def test_a_data_folder_has_a_name(variable: bool, tmp_path: Path) -> None:
    file = written(tmp_path, "" if variable else 'data = ""')
    with pytest.raises(ConfigError) as raised:
        load(file, {"OFFSETWATCH_DATA": ""} if variable else {})
    said = f"{'OFFSETWATCH_DATA' if variable else file}: data: must name a folder: . is this one"
    assert str(raised.value).startswith(said), raised.value


def test_a_secret_that_the_environment_holds_plainly_is_not_shown() -> None:
    with pytest.raises(ConfigError) as raised:
        load(environment={"OFFSETWATCH_ALERTS__WEBHOOK__SECRET": SECRET})
    variable = "OFFSETWATCH_ALERTS__WEBHOOK__SECRET"
    assert str(raised.value) == f'{variable}: alerts.webhook.secret: must be {{ env = "NAME" }} or {{ file = "path" }}'


@pytest.mark.parametrize("name", ["page_url", "runbook_url"])
@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "canary:9477", "https://", "http://canary /", "http://c\u00e4nary"]
)
def test_a_link_that_leads_to_no_page_is_refused(name: str, url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"alerts.{name}: must be a page's address"):
        load(written(tmp_path, f'[alerts]\n{name} = "{url}"'), {})
    assert getattr(load(written(tmp_path, f'[alerts]\n{name} = "https://canary:9477/x"'), {}).alerts, name)


@pytest.mark.parametrize(
    "address", [f"ftp://me:{SECRET}@h/", f"http:///{SECRET}", f"https://h/{SECRET} y", f"http://h:x/{SECRET}", SECRET]
)
@pytest.mark.parametrize("receiver", ["webhook", "alertmanager"])
def test_an_address_that_nobody_could_be_told_at_is_refused_and_not_shown(
    receiver: str, address: str, tmp_path: Path
) -> None:
    file = written(tmp_path, f'[alerts.{receiver}]\nurls = ["{address}"]')
    with pytest.raises(ConfigError, match=f"alerts.{receiver}.urls.0: is no address of a receiver") as raised:
        load(file, {})
    assert SECRET not in str(raised.value)
    with pytest.raises(ConfigError, match="input should be a valid") as raised:
        load(environment={f"OFFSETWATCH_ALERTS__{receiver.upper()}__URLS": f"http://me:{SECRET}@h/"})
    assert SECRET not in str(raised.value)


def test_a_variable_of_ours_may_hold_a_secret(tmp_path: Path) -> None:
    file = written(tmp_path, '[alerts.webhook]\nurls = ["http://h/"]\nsecret = { env = "OFFSETWATCH_HOOK" }')
    assert load(file, {"OFFSETWATCH_HOOK": SECRET}).alerts.webhook.secret is not None
    with pytest.raises(ConfigError, match="OFFSETWATCH_HOOKS: there is no key hooks"):
        load(file, {"OFFSETWATCH_HOOKS": "1"})


WRONG_SECURITY = [
    ('"sasl.password" = 5', "cluster.security.sasl.password: must be a string"),
    (
        '"sasl.password" = { evn = "x" }',
        'sasl.password: must be a string, \\{ env = "NAME" \\} or \\{ file = "path" \\}',
    ),
    (f'"sasl.password" = ["{SECRET}"]', "cluster.security.sasl.password: must be a string"),
]


@pytest.mark.parametrize(("text", "complaint"), WRONG_SECURITY)
def test_wrong_security_settings_are_named_and_not_shown(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as raised:
        config = load(written(tmp_path, f"[cluster.security]\n{text}"), {})
        reach(config)
    assert SECRET not in str(raised.value)


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    config = load(written(tmp_path, f'[cluster.security]\nsasl.password = "{SECRET}"'), {})
    assert SECRET not in repr(config) + str(config) + config.model_dump_json()
    assert SECRET not in repr(connection(config))


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ('{ env = "NOT_SET" }', "cluster.security.sasl.password: the environment variable NOT_SET is not set"),
        ('{ file = "/no/such/file" }', "cluster.security.sasl.password: /no/such/file cannot be read: No such file"),
    ],
)
def test_secrets_that_are_not_there(tmp_path: Path, setting: str, complaint: str) -> None:
    config = load(written(tmp_path, f"[cluster.security]\nsasl.password = {setting}"), {})
    with pytest.raises(ConfigError, match=complaint):
        config.cluster.secrets({})


@pytest.mark.parametrize("given", ["http://a:9092", "a", "a:", ":9092", "a:1,,b:2", "a:1 b:2", "[::1]"])
def test_what_is_no_address_is_said_at_once(tmp_path: Path, given: str) -> None:
    with pytest.raises(ConfigError, match=r"cluster.bootstrap: a broker's address is host:port"):
        load(written(tmp_path, f'[cluster]\nbootstrap = "{given}"\n'), {})
    load(written(tmp_path, '[cluster]\nbootstrap = "a-b.c:9092, [::1]:9092,10.0.0.1:1"\n'), {})


def test_messages_name_where_a_value_comes_from(tmp_path: Path) -> None:
    file = written(tmp_path, "[cluster]\nreachable_within = 3\n")
    config = load(file, {"OFFSETWATCH_CLUSTER__BOOTSTRAP": "a:1"})
    assert config.named("cluster.bootstrap") == "OFFSETWATCH_CLUSTER__BOOTSTRAP: cluster.bootstrap"
    assert config.named("cluster.reachable_within") == f"{file}: cluster.reachable_within"
    assert config.named("alerts.log") == "by default: alerts.log"


def test_a_value_that_an_option_gave_is_named_by_the_option(tmp_path: Path) -> None:
    there = loaded_by(None, tmp_path)
    assert (there.named("data"), there.named("cluster.bootstrap")) == ("--data: data", "by default: cluster.bootstrap")
    with pytest.raises(ConfigError, match=r"^--data: data: must be a folder"):
        loaded_by(None, Path("s3://bucket/data"))


def test_how_a_store_is_reached_may_stand_in_the_configuration_and_its_secrets_in_files(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    told = f'[storage]\nAWS_REGION = "here"\nAWS_SECRET_ACCESS_KEY = {{ file = "{tmp_path / "key"}" }}\n'
    config = load(written(tmp_path, told + 'AZURE_STORAGE_KEY = { env = "OTHER" }\n'), {})
    assert SECRET not in repr(config) + str(config.model_dump())
    environment = {"AWS_REGION": "there", "OTHER": "x"}
    config.lend_storage(environment)
    assert environment == {
        "AWS_REGION": "there",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "OTHER": "x",
        "AZURE_STORAGE_KEY": "x",
    }, "what is set is above it"
    (tmp_path / "key").unlink()
    with pytest.raises(ConfigError) as refused:
        config.lend_storage({"OTHER": "x"})
    assert (
        str(refused.value)
        == f"storage.AWS_SECRET_ACCESS_KEY: {tmp_path / 'key'} cannot be read: No such file or directory"
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            f'AWS_SECRET_ACCESS_KEY = ["{SECRET}"]',
            'storage.AWS_SECRET_ACCESS_KEY: must be a string, {{ env = "NAME" }} or {{ file = "path" }}',
        ),
        (
            f'SECRET_ACCESS_KEY = "{SECRET}"',
            "storage: no object store has a variable SECRET_ACCESS_KEY: they begin with AWS_, AZURE_ or GOOGLE_",
        ),
    ],
)
def test_wrong_settings_of_a_store_are_named_and_not_shown(tmp_path: Path, text: str, complaint: str) -> None:
    file = written(tmp_path, f"[storage]\n{text}\n")
    with pytest.raises(ConfigError) as refused:
        load(file, {})
    assert str(refused.value) == f"{file}: {complaint}".replace("{{", "{").replace("}}", "}")


def test_bytes_that_are_no_text_are_named_by_their_source_and_nothing_else_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, f"[cluster.security]\n'sasl.password' = '{SECRET}'\n")
    environment = {
        "OFFSETWATCH_CLUSTER__BOOTSTRAP": "host\udce4:9092",
        "OFFSETWATCH_CLUSTER__SECURITY__SASL_PASSWORD": f"{SECRET}\udce4",
        "OFFSETWATCH_PROBES__RUN": "läuft",
    }
    with pytest.raises(ConfigError) as refused:
        load(file, environment)
    assert refused.value.complaints == tuple(
        f"{name}: holds bytes that are no utf-8 text" for name in [*environment][:2]
    )
    for name in environment:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"^--data: holds bytes that are no utf-8 text$"):
        loaded_by(file, Path("bad\udcff"))


def test_a_secret_that_is_no_text_is_named_by_its_variable(tmp_path: Path) -> None:
    file = written(tmp_path, "[cluster.security]\n'sasl.password' = { env = 'LOGIN' }\n")
    told = load(file, {"LOGIN": "p\udce4ss"}).cluster
    with pytest.raises(
        ConfigError, match=r"^cluster\.security\.sasl\.password: the environment variable LOGIN cannot be"
    ):
        told.secrets({"LOGIN": "p\udce4ss"})


@pytest.mark.parametrize("key", ["data", "job.tables", "job.history", "job.checkpoint"])
def test_no_table_is_put_where_it_cannot_be_opened(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    *table, name = key.split(".")
    file = written(tmp_path, "".join(f"[{one}]\n" for one in table) + f"{name} = 'a%20b'\n")
    with pytest.raises(ConfigError, match=rf"^\S+my\.toml: {key}: no table can be opened below a folder with a % in"):
        load(file, {})
    (tmp_path / "100%").mkdir()
    monkeypatch.chdir(tmp_path / "100%")
    with pytest.raises(ConfigError, match=r"no table can be opened below a folder with a % in its path, /\S+/100%/"):
        load(environment={})


@pytest.mark.parametrize("port", [0, 65_536, 99_999])
def test_a_brokers_port_is_one(tmp_path: Path, port: int) -> None:
    file = tmp_path / "offsetwatch.toml"
    file.write_text(f'[cluster]\nbootstrap = "a:9092,b:{port}"\n')
    with pytest.raises(ConfigError, match=r"cluster.bootstrap: a broker's port is 1 to 65535"):
        load(file, {})


@pytest.mark.parametrize("given", ["5", "[]", "{}"])
def test_a_data_folder_that_is_none_is_said_once(tmp_path: Path, given: str) -> None:
    file = tmp_path / "offsetwatch.toml"
    file.write_text(f"data = {given}\n")
    with pytest.raises(ConfigError) as refused:
        load(file, {})
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"{file}: data: ")


@pytest.mark.parametrize("key", ["root", "history", "tables", "checkpoint"])
def test_a_place_of_the_jobs_has_a_name(tmp_path: Path, key: str) -> None:
    file = tmp_path / "offsetwatch.toml"
    file.write_text(f'[job]\n{key} = ""\n')
    with pytest.raises(ConfigError, match=f"job.{key}: must "):
        load(file, {})
