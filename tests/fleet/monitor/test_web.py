"""The monitor's web server: who may ask for what, and what strangers cannot do."""

import http.client
import socket
import stat
from contextlib import closing
from http import HTTPStatus
from pathlib import Path

import pytest
from monitored import SERVER, VAULT, ask, ask_json, monitoring, send

from fedldp.errors import DomainError
from fedldp.fleet.monitor import web
from fedldp.fleet.monitor.address import MonitorAddress
from fedldp.fleet.monitor.web import LARGEST, Reply, Request, Site

TOKEN = "a-token-that-nobody-guesses"
PATHS = ["/", "/page.js", "/page.css", "/icon.svg", "/status.json", "/healthz", "/metrics"]


@pytest.fixture
def server(tmp_path):
    (tmp_path / "server.toml").touch()
    return tmp_path


def secret(folder, text=TOKEN, mode=0o600):
    path = folder / "token"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("path", PATHS)
def test_every_route_has_safe_headers(server, path):
    with monitoring(server, SERVER) as address:
        status, headers, _ = ask(address, path)
    assert status == 200
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Security-Policy"].startswith("default-src 'self'; ")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "Server" not in headers
    assert "Access-Control-Allow-Origin" not in headers


def test_the_page_is_only_where_a_server_is(tmp_path):
    with monitoring(tmp_path, VAULT) as address:
        assert ask(address, "/metrics")[0] == 200
        assert [ask(address, path)[0] for path in ("/", "/status.json", "/page.js")] == [404] * 3
        assert "/healthz, /metrics" in ask(address, "/")[2]


def test_only_known_paths_are_served(server):
    (server / "secret").write_text("secret")
    with monitoring(server, SERVER) as address:
        for path in (
            "/secret",
            "/../secret",
            "/page/../secret",
            "/%2e%2e/secret",
            "//",
            "/Metrics",
        ):
            assert ask(address, path)[0] == 404, path


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "FETCH"])
def test_get_alone_is_allowed(server, method):
    with monitoring(server, SERVER) as address:
        status, headers, _ = ask(address, "/status.json", method)
    assert (status, headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"GET http://elsewhere/ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\nHost: localhost\n\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: elsewhere\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /?" + b"&".join([b"a=b"] * 50) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\xff\xfe\r\n\r\n",
    ],
)
def test_invalid_requests_are_refused(server, data):
    with monitoring(server, SERVER) as address:
        assert send(address, data).startswith(b"HTTP/1.1 400 ")
        assert ask(address, "/healthz")[0] == 200


def test_a_long_request_is_refused(server):
    with monitoring(server, SERVER) as address:
        data = b"GET /" + b"x" * 2 * LARGEST + b" HTTP/1.1\r\n\r\n"
        assert send(address, data).startswith(b"HTTP/1.1 431 ")
        assert ask(address, "/healthz")[0] == 200


def test_strangers_cannot_use_up_all_connections(server, monkeypatch):
    """Those who say nothing lose their connections after a while."""
    monkeypatch.setattr(web, "PATIENCE", 0.5)
    with monitoring(server, SERVER) as address:
        place = (address.host, address.port)
        idle = [socket.create_connection(place, 30) for _ in range(web.CONNECTIONS + 5)]
        for link in idle:
            assert link.recv(1) == b""
            link.close()
        assert ask(address, "/healthz")[0] == 200


@pytest.mark.parametrize("sent", [b"", b"GET / HT"])
def test_idle_connections_give_way_to_others(server, monkeypatch, sent):
    """However long they may wait: the oldest one is closed."""
    monkeypatch.setattr(web, "PATIENCE", 3600.0)
    with monitoring(server, SERVER) as address:
        place = (address.host, address.port)
        idle = [socket.create_connection(place, 30) for _ in range(web.CONNECTIONS)]
        for link in idle:
            link.sendall(sent)
        try:
            for _ in range(3):
                assert ask(address, "/healthz")[0] in (200, 503)
            assert idle[0].recv(1) == b""
            idle[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[len(sent) :])
            assert idle[-1].recv(12) == b"HTTP/1.1 200"
        finally:
            for link in idle:
                link.close()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9480", "127.0.0.1:1", "[::1]:9480"])
def test_names_of_this_machine_are_known(server, host):
    with monitoring(server, SERVER) as address:
        assert ask(address, "/status.json", Host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    ["rebound.example", "localhost.example", "127.0.0.1.example", "", "127.0.0.1@x", "[::2]"],
)
def test_another_name_for_this_machine_is_refused(server, host):
    """A page of another site whose name leads to this machine must not read anything."""
    with monitoring(server, SERVER) as address:
        assert ask(address, "/status.json", Host=host)[0] == 421


def test_without_a_host_nothing_is_said(server):
    with monitoring(server, SERVER) as address:
        assert send(address, b"GET /metrics HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 421 ")


class TestToken:
    def test_programs_send_it_in_a_header(self, server):
        with monitoring(server, SERVER, token=TOKEN) as address:
            for path in PATHS:
                assert ask(address, path)[0] == 401
                assert ask(address, path, Authorization=f"Bearer {TOKEN}")[0] == 200
            for wrong in (f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer", TOKEN, "Bearer ä"):
                assert ask(address, "/metrics", Authorization=wrong)[0] == 401

    def test_people_get_a_cookie_for_it(self, server):
        with monitoring(server, SERVER, token=TOKEN) as address:
            status, headers, text = ask(address, f"/?token={TOKEN}")
            assert (status, headers["Location"]) == (303, "/")
            cookie, *attributes = headers["Set-Cookie"].split("; ")
            assert set(attributes) == {"Path=/", "HttpOnly", "SameSite=Strict"}
            assert TOKEN not in cookie + text
            assert ask(address, "/status.json", Cookie=f"other=1; {cookie}")[0] == 200
            assert ask(address, "/status.json", Cookie=f"{cookie}0")[0] == 401
            assert ask(address, "/status.json", Cookie=f"{web.COOKIE}={TOKEN}")[0] == 401

    def test_a_wrong_one_gets_nothing(self, server):
        with monitoring(server, SERVER, token=TOKEN) as address:
            status, headers, _ = ask(address, "/?token=wrong")
        assert status == 401
        assert "Set-Cookie" not in headers

    def test_the_way_back_stays_on_this_site(self, server):
        with monitoring(server, SERVER, token=TOKEN) as address:
            assert ask(address, f"/metrics?token={TOKEN}")[1]["Location"] == "/metrics"
            assert ask(address, f"//elsewhere.example/?token={TOKEN}")[1]["Location"] == "/"

    def test_another_cookie_for_another_token(self):
        cookies = {Site(MonitorAddress("127.0.0.1", 1, token=each))._cookie for each in "ab"}
        assert len(cookies) == 2


class TestAddress:
    @pytest.mark.parametrize("text", ["0.0.0.0:9480", "10.0.0.1:9480", "[::]:9480"])
    def test_other_machines_need_a_token(self, tmp_path, text):
        with pytest.raises(DomainError, match="needs monitor_token"):
            MonitorAddress.of(text)
        found = MonitorAddress.of(text, tmp_path, secret(tmp_path))
        assert found.token == TOKEN
        assert not found.loopback

    @pytest.mark.parametrize("text", ["127.0.0.1:9480", "[::1]:9480", "localhost:9480"])
    def test_this_machine_needs_none(self, text):
        assert MonitorAddress.of(text).loopback

    @pytest.mark.parametrize(
        "text", ["", "example.org:80", "127.0.0.1:0", "127.0.0.1:70000", "1:2:3", "127.0.0.1:²"]
    )
    def test_invalid_addresses_are_refused(self, text):
        with pytest.raises(DomainError, match="monitor must be"):
            MonitorAddress.of(text)

    def test_a_token_must_be_long_and_secret(self, tmp_path):
        with pytest.raises(DomainError, match="at least 16 printable"):
            MonitorAddress.of("127.0.0.1:1", tmp_path, secret(tmp_path, "short"))
        with pytest.raises(DomainError, match="other accounts can read"):
            MonitorAddress.of("127.0.0.1:1", tmp_path, secret(tmp_path, mode=0o640))
        with pytest.raises(DomainError, match="cannot be read"):
            MonitorAddress.of("127.0.0.1:1", tmp_path, "missing")

    def test_the_configuration_names_it(self, tmp_path):
        path = tmp_path / "server.toml"
        path.write_text('front = "0.0.0.0:1"\n')
        assert MonitorAddress.load(path) is None
        path.write_text('monitor = "0.0.0.0:9480"\n')
        with pytest.raises(DomainError, match=r"server\.toml: .*needs monitor_token"):
            MonitorAddress.load(path)
        path.write_text("monitor = 9480\n")
        with pytest.raises(DomainError, match="must be texts"):
            MonitorAddress.load(path)
        secret(tmp_path)
        path.write_text('monitor = "run/m.sock"\nmonitor_token = "token"\n')
        found = MonitorAddress.load(path)
        assert (found.path, found.token) == (str(tmp_path / "run/m.sock"), TOKEN)

    def test_a_port_in_use_is_reported(self):
        with closing(socket.create_server(("127.0.0.1", 0))) as taken:
            found = MonitorAddress("127.0.0.1", taken.getsockname()[1])
            with pytest.raises(DomainError, match=r"cannot listen .* Choose another address"):
                found.listen()


class TestUnixSocket:
    def test_its_account_alone_reaches_it(self, tmp_path):
        address = MonitorAddress.of("m.sock", tmp_path)
        site = Site(address, {"/healthz": lambda _: Reply.json({"status": "ok"})})
        with web.serving(site, address.listen()), socket.socket(socket.AF_UNIX) as link:
            mode = Path(address.path).stat().st_mode
            assert stat.S_ISSOCK(mode)
            assert stat.S_IMODE(mode) == 0o600
            link.connect(address.path)
            link.sendall(b"GET /healthz HTTP/1.1\r\nHost: any.name\r\n\r\n")
            assert link.recv(1 << 16).startswith(b"HTTP/1.1 200 ")

    def test_one_that_was_left_behind_is_replaced(self, tmp_path):
        address = MonitorAddress.of("m.sock", tmp_path)
        address.listen().close()
        with closing(address.listen()), pytest.raises(DomainError, match="another process listens"):
            address.listen()

    def test_a_file_is_never_replaced(self, tmp_path):
        (tmp_path / "data.csv").write_text("1")
        with pytest.raises(DomainError, match="not a socket"):
            MonitorAddress.of("./data.csv", tmp_path).listen()
        assert (tmp_path / "data.csv").read_text() == "1"


def test_a_failing_route_says_nothing_about_itself(server, caplog):
    def fails(_):
        raise RuntimeError("a secret")

    with monitoring(server, SERVER, routes={"/metrics": fails}) as address:
        status, _, text = ask(address, "/metrics")
        assert ask(address, "/healthz")[0] == 200
    assert status == 500
    assert "secret" not in text
    assert "a secret" in caplog.text


def test_many_callers_at_once(server):
    """More than may be served at a time: nobody waits forever, and the monitor stays up."""
    with monitoring(server, SERVER) as address:
        links = [
            http.client.HTTPConnection(address.host, address.port, timeout=30) for _ in range(9)
        ]
        for link in links:
            link.request("GET", "/status.json")
        assert {link.getresponse().status for link in links} == {200}
        for link in links:
            link.close()


def test_health_names_what_is_wrong(server):
    with monitoring(server, SERVER) as address:
        assert ask_json(address, "/healthz") == {"status": "ok"}
    with monitoring(server, SERVER | {"running": False}) as address:
        assert ask(address, "/healthz")[0] == 503
        found = ask_json(address, "/healthz")
    assert found == {"status": "failing", "reasons": ["server is not running"]}


def test_a_query_is_read():
    found = Request.parse(b"GET /a?token=x%20y&b= HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (found.path, found.query["token"], found.headers["host"]) == ("/a", "x y", "a")


def test_a_line_of_spaces_is_refused_at_once():
    """With a pattern that looks for the value between spaces, this would take hours."""
    line = b"A:" + b" " * (LARGEST // 2) + b"\x01"
    found = Request.parse(b"GET / HTTP/1.1\r\n" + line + b"\r\n\r\n")
    assert found.status == HTTPStatus.BAD_REQUEST


def test_spaces_around_a_value_do_not_count():
    found = Request.parse(b"GET / HTTP/1.1\r\nHost: \t a b \r\nhost:a b\r\nempty: \r\n\r\n")
    assert found.headers == {"host": "a b", "empty": ""}
