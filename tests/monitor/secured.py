"""A broker that wants TLS and a login, for the tests of who may come in."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from deploy.java import java
from deploy.local_kafka import LocalKafka
from deploy.ports import HOST, free_ports

LIMIT_S = 120.0
USER, PASSWORD = "probe", "probe-hush"
_LOGIN = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Secured:
    """A broker with two listeners. `plain` is for what a test has to set up."""

    plain: str
    bootstrap: str
    certificate: Path

    def security(self, mechanism: str = "SCRAM-SHA-512", **changed: str) -> dict[str, str]:
        told = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificate),
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
        return told | {key.replace("__", "."): value for key, value in changed.items()}


@contextmanager
def secured_broker(folder: Path, **more: str) -> Iterator[Secured]:
    """One broker of Kafka in `folder`, with a user for each mechanism. `more`: further settings, `__` for a full
    stop."""
    store, certificate = folder / "store.p12", folder / "certificate.pem"
    tool = [str(java().with_name("keytool")), "-keystore", str(store), "-storepass", PASSWORD, "-alias", "broker"]
    made = ["-genkeypair", "-keyalg", "RSA", "-dname", "CN=broker", "-ext", f"SAN=IP:{HOST}", "-storetype", "PKCS12"]
    for command in (made, ["-exportcert", "-rfc", "-file", str(certificate)]):
        subprocess.run([*tool, *command], check=True, capture_output=True)
    client, controller, secure = free_ports(3)
    # A listener more has to be named with its port, so the cluster's ports are laid down before it starts.
    (folder / "kafka").mkdir()
    known = {"cluster_id": "c2VjdXJlZC1jbHVzdGVyLQ", "ports": {"1": (client, controller)}}
    (folder / "kafka" / "cluster.json").write_text(json.dumps(known))
    overrides = {
        "listeners": f"PLAINTEXT://{HOST}:{client},CONTROLLER://{HOST}:{controller},SECURE://{HOST}:{secure}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{client},SECURE://{HOST}:{secure}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": PASSWORD,
        "listener.name.secure.plain.sasl.jaas.config": (
            f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
        # It believes what a token says of itself: what is tested is that ours comes to it.
        "listener.name.secure.oauthbearer.sasl.jaas.config": (
            f'{_LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        ),
        "listener.name.secure.scram-sha-256.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
        "listener.name.secure.scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
    } | {key.replace("__", "."): value for key, value in more.items()}
    with LocalKafka(folder / "kafka", brokers=1, overrides=overrides) as kafka:
        change_password(kafka.bootstrap, PASSWORD)
        yield Secured(kafka.bootstrap, f"{HOST}:{secure}", certificate)


def change_password(bootstrap: str, password: str) -> None:
    """Give the user this password; `bootstrap` is the listener that asks for none."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        wanted = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), password.encode())
        admin.alter_user_scram_credentials([wanted])[USER].result(LIMIT_S)


TOKEN_HOOK = f"{__name__}:token"
TOKEN_S = 3600.0


def token(config: str, now: float | None = None) -> tuple[str, float]:
    """A token that nobody signed, as OAUTHBEARER's function of ours gives it; `config` names who it is for."""
    now = time.time() if now is None else now
    # A broker refuses what was issued in its future, and tells time in whole milliseconds.
    claims = {"sub": config or USER, "iat": now - 60, "exp": now + TOKEN_S}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims)]
    return b".".join([*parts, b""]).decode(), now + TOKEN_S
