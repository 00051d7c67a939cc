"""Who is let in, under which names, and what every answer tells a browser."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from alerts.serving.server import Tls
from monitor.status.access import COOKIE, allowed_hosts, cookie_of
from tests.monitor.status.serving import Monitor, Served, served, state

TOKEN = "correct horse battery staple"
HTML = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def open_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(Monitor().board(state()), tmp_path_factory.mktemp("tables"), hosts=("status.example",)) as page:
        yield page


@pytest.fixture(scope="module")
def closed_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(Monitor().board(state()), tmp_path_factory.mktemp("tables"), token=TOKEN) as page:
        yield page


@pytest.fixture(scope="module")
def named_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tables = tmp_path_factory.mktemp("tables")
    with served(Monitor().board(state()), tables, token=TOKEN, hosts=("status.example",)) as page:
        yield page


@pytest.mark.parametrize(
    ("listening", "named", "hosts"),
    [
        ("127.0.0.1", (), {"localhost", "127.0.0.1", "[::1]"}),
        ("::1", (), {"localhost", "127.0.0.1", "[::1]"}),
        ("127.0.0.2", (), {"localhost", "127.0.0.1", "[::1]", "127.0.0.2"}),
        ("127.0.0.1", ("Status.Example",), {"localhost", "127.0.0.1", "[::1]", "status.example"}),
        ("0.0.0.0", (), None),
        ("::", (), None),
        ("10.1.2.3", (), None),
        ("0.0.0.0", ("status.example",), {"localhost", "127.0.0.1", "[::1]", "0.0.0.0", "status.example"}),
    ],
)
def test_the_names_under_which_it_may_be_asked(listening: str, named: tuple[str, ...], hosts: set[str] | None) -> None:
    assert allowed_hosts(listening, named) == hosts


@pytest.mark.parametrize("path", ["/", "/status", "/metrics", "/static/page.js", "/incidents/0000abcd"])
def test_a_name_that_somebody_has_made_lead_here_is_refused(open_page: Served, path: str) -> None:
    for name in ("evil.example", "evil.example:9477", "localhost.evil.example", ""):
        assert open_page.get(path, Host=name).status == 421, name
    for name in ("localhost", "LOCALHOST:9477", "127.0.0.1:1", "[::1]:9477", "[::1]", "status.example"):
        assert open_page.get(path, Host=name).status in (200, 404), name


def test_whether_it_lives_an_orchestrator_may_ask_by_address(open_page: Served) -> None:
    assert [open_page.get(path, Host="10.1.2.3:9477").status for path in ("/live", "/ready")] == [200, 200]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/status", 200),
        ("/metrics", 200),
        ("/live", 200),
        ("/static/page.css", 200),
        ("/nothing", 404),
        ("/incidents/00000000", 404),
        ("/incidents/0", 404),
        ("/incidents/../../etc/passwd", 404),
    ],
)
def test_every_answer_keeps_others_out_of_the_page(open_page: Served, path: str, status: int) -> None:
    got = open_page.get(path)
    assert got.status == status
    policy = dict(part.strip().split(" ", 1) for part in got.headers["content-security-policy"].split(";"))
    assert (policy["default-src"], policy["script-src"], policy["style-src"]) == ("'none'", "'self'", "'self'")
    assert (policy["frame-ancestors"], policy["base-uri"], policy["form-action"]) == ("'none'", "'none'", "'self'")
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["referrer-policy"] == "no-referrer"
    assert "server" not in got.headers
    assert "Traceback" not in got.text


def test_it_is_read_only(open_page: Served) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        for path in ("/", "/status", "/incidents/00000000", "/metrics"):
            assert open_page.ask(method, path, body="x").status == 405, (method, path)
    assert open_page.ask("HEAD", "/").status == 200


def test_without_the_token_nothing_is_shown(closed_page: Served) -> None:
    for path in ("/", "/fragments/overview", "/incidents/00000000", "/status", "/metrics", "/nothing"):
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Basic {TOKEN}"},
            {"Cookie": f"{COOKIE}=wrong"},
            {"Cookie": f"{COOKIE}={TOKEN}"},
        ):
            got = closed_page.get(path, **headers)
            assert got.status == 401, (path, headers)
            assert got.text == "A token is needed: Authorization: Bearer ...\n"
            assert got.headers["www-authenticate"] == "Bearer"
    assert [closed_page.get(path).status for path in ("/live", "/ready", "/static/page.css")] == [200, 200, 200]


def test_programs_give_it_as_a_bearer_token(closed_page: Served) -> None:
    assert closed_page.get("/status", Authorization=f"Bearer {TOKEN}").status == 200
    assert closed_page.get("/metrics", Authorization=f"bearer  {TOKEN} ").status == 200


def test_a_program_with_the_token_may_ask_by_address(named_page: Served) -> None:
    given, address = f"Bearer {TOKEN}", "10.1.2.3:9477"
    for path in ("/metrics", "/status"):
        assert named_page.get(path, Host=address, Authorization=given).status == 200
        assert named_page.get(path, Host=address, Authorization="Bearer wrong").status == 421
        assert named_page.get(path, Host=address, Cookie=f"{COOKIE}={cookie_of(TOKEN)}").status == 421
        assert named_page.get(path, Host=address).status == 421
    assert [named_page.get(path, Host=address).status for path in ("/live", "/ready")] == [200, 200]


def test_a_browser_is_given_a_cookie_for_it_by_the_form(closed_page: Served) -> None:
    asked = closed_page.get("/incidents/0000abcd", **HTML)
    assert asked.status == 401
    assert '<input type="hidden" name="next" value="/incidents/0000abcd">' in asked.text
    form = f"token={quote(TOKEN)}&next=/incidents/0000abcd"
    given = closed_page.ask("POST", "/login", body=form)
    assert (given.status, given.headers["location"]) == (303, "/incidents/0000abcd")
    cookie = given.headers["set-cookie"]
    assert {"HttpOnly", "Path=/", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
    assert TOKEN not in cookie and quote(TOKEN) not in cookie
    assert closed_page.get("/", Cookie=cookie.split(";")[0]).status == 200
    wrong = closed_page.ask("POST", "/login", body="token=wrong&next=/")
    assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)
    assert "That is not the token" in wrong.text
    assert closed_page.ask("POST", "/login", body="token=" + "x" * 10_000).status == 413
    assert closed_page.ask("POST", "/login", body="\xff").status == 401


def test_a_token_in_the_address_is_taken_out_of_it(closed_page: Served) -> None:
    got = closed_page.get(f"/incidents/0000abcd?a=b&token={quote(TOKEN)}", **HTML)
    assert (got.status, got.headers["location"]) == (303, "/incidents/0000abcd?a=b")
    assert got.headers["set-cookie"].startswith(f"{COOKIE}={cookie_of(TOKEN)};")
    assert closed_page.get("/?token=wrong", **HTML).status == 401


@pytest.mark.parametrize(
    "to", ["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:alert(1)", "", "/a\r\nX: y"]
)
def test_it_sends_nobody_elsewhere(closed_page: Served, to: str) -> None:
    got = closed_page.ask("POST", "/login", body=f"token={quote(TOKEN)}&next={quote(to)}")
    assert (got.status, got.headers["location"]) == (303, "/")
    assert "x" not in got.headers
    doubled = closed_page.get(f"//evil.example/?token={quote(TOKEN)}", **HTML)
    assert doubled.headers.get("location", "/") == "/"


def test_the_cookie_of_another_token_opens_nothing() -> None:
    assert cookie_of(TOKEN) != cookie_of(TOKEN + "!")
    assert len(cookie_of(TOKEN)) == 64


def test_with_tls_it_is_served_encrypted_and_the_cookie_stays_so(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: apt-get install openssl")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-out",
            certificate,
            "-keyout",
            key,
        ],
        check=True,
        capture_output=True,
    )
    tls = Tls(certificate, key)
    tls.check()
    trust = ssl.create_default_context(cafile=str(certificate))
    with served(Monitor().board(state()), tmp_path, token=TOKEN, tls=tls, trust=trust) as page:
        assert page.url.startswith("https://127.0.0.1:")
        assert page.get("/live").status == 200
        given = page.ask("POST", "/login", body=f"token={quote(TOKEN)}")
        assert "Secure" in {part.strip() for part in given.headers["set-cookie"].split(";")}
    with pytest.raises(OSError):
        Tls(certificate, certificate.with_name("missing.pem")).check()
    with pytest.raises(ssl.SSLError):
        Tls(certificate, certificate).check()
