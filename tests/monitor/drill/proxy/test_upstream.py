"""Brokers that want TLS and a login: the proxy does both, and clients speak to it in the clear."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from monitor.cli import app
from monitor.drill.proxy import CannotConnect, Place, Proxy, ProxyFailed, upstream
from tests.monitor.drill.proxy.clients import LIMIT_S, producer, read, send, topic
from tests.monitor.secured import TOKEN_HOOK, USER, Secured, token


def answers(proxy: Proxy, *, within: float = 1.0) -> bool:
    try:
        return bool(
            AdminClient({"bootstrap.servers": proxy.bootstrap, "log_level": 0}).list_topics(timeout=within).brokers
        )
    except KafkaException:
        return False


def answers_until_it_fails(proxy: Proxy) -> bool:
    """Whether it answers before its login is refused."""
    limit = time.monotonic() + 60
    while not proxy.errors:
        if answers(proxy):
            return True
        assert time.monotonic() < limit, "nothing is refused"
    return False


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_clients_in_the_clear_reach_a_broker_that_wants_tls_and_a_login(secured: Secured, mechanism: str) -> None:
    with Proxy(secured.bootstrap, upstream=upstream(secured.security(mechanism))) as proxy:
        name = topic(proxy.bootstrap)
        assert send(producer(proxy.bootstrap), name, b"a", b"b") == [0, 1]
        assert read(proxy.bootstrap, name) == [(0, b"a"), (1, b"b")]
        assert proxy.run(proxy.side.offset(Place(name, 0))) == 2, "the proxy's own connections are logged in, too"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_login_that_is_refused_fails_the_proxy_and_shows_no_secret(secured: Secured, mechanism: str) -> None:
    reached = upstream(secured.security(mechanism, sasl__password="wrong-hush"))
    refused = pytest.raises(ProxyFailed, match=f"login by {mechanism}: sasl_authentication_failed")
    with refused as failed, Proxy(secured.bootstrap, upstream=reached) as proxy:
        assert not answers_until_it_fails(proxy)
    assert "hush" not in str(failed.value) and "hush" not in repr(reached)


def test_a_token_of_the_users_function_logs_in_and_one_that_is_refused_shows_itself_not(secured: Secured) -> None:
    asked = secured.security("OAUTHBEARER", sasl__oauthbearer__config=USER)
    with Proxy(secured.bootstrap, upstream=upstream(asked, TOKEN_HOOK)) as proxy:
        assert answers(proxy, within=LIMIT_S)
    reached = upstream(asked, f"{__name__}:expired")
    refused = pytest.raises(ProxyFailed, match="the login by OAUTHBEARER: ")
    with refused as failed, Proxy(secured.bootstrap, upstream=reached) as proxy:
        assert not answers_until_it_fails(proxy)
    assert expired("")[0] not in str(failed.value)


def expired(config: str) -> tuple[str, float]:
    """A token that a broker of 1970 would have taken."""
    return token(config, now=0.0)


def test_a_broker_whose_certificate_nobody_vouches_for_is_not_spoken_to(secured: Secured) -> None:
    security = secured.security()
    del security["ssl.ca.location"]
    with Proxy(secured.bootstrap, upstream=upstream(security)) as proxy:
        assert not answers(proxy)
    unverified = upstream(security | {"enable.ssl.certificate.verification": "false"})
    with Proxy(secured.bootstrap, upstream=unverified) as proxy:
        assert answers(proxy, within=LIMIT_S)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"sasl.mechanism": "GSSAPI"}, "cannot log in by sasl.mechanism GSSAPI, only PLAIN, SCRAM-SHA-256"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "logs in by OAUTHBEARER only with cluster.token"),
        ({"ssl.keystore.location": "/x.p12"}, "does not understand ssl.keystore.location"),
        ({"ssl.ca.location": "/no/such/file"}, "ssl.ca.location: /no/such/file does not exist"),
        ({"security.protocol": "carrier_pigeon"}, "does not know security.protocol CARRIER_PIGEON"),
    ],
)
def test_settings_that_it_cannot_follow_are_named(changed: dict[str, str], told: str) -> None:
    security = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    with pytest.raises(CannotConnect, match=told):
        upstream(security | changed)


def test_settings_of_a_layer_that_is_not_used_do_not_matter() -> None:
    reached = upstream({"sasl.username": "u", "ssl.ca.location": "/no/such/file", "client.rack": "r"})
    assert reached == replace(reached, tls=None, login=None)


def test_a_drill_against_a_cluster_that_wants_tls_and_a_login(secured: Secured, tmp_path: Path) -> None:
    config = tmp_path / "staging.toml"
    security = "\n".join(f'"{key}" = "{value}"' for key, value in secured.security().items())
    config.write_text(f'[cluster]\nbootstrap = "{secured.bootstrap}"\n[cluster.security]\n{security}\n')
    result = CliRunner().invoke(
        app,
        ["drill", "run", "retry-without-idempotence", "--against", str(config), "--report", str(tmp_path / "report")],
    )
    assert result.exit_code == 0, result.output
    assert "hush" not in result.output
    (found,) = (tmp_path / "report").glob("*.json")
    assert "hush" not in found.read_text()
