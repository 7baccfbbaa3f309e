"""Several server processes on one PostgreSQL, behind a real nginx that ends TLS."""

import contextlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import trustme
from server_process import HOST, PATIENCE, ServerProcess, free_port

INSTALL = "apt-get install nginx-light"

_CONFIG = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream fleet {{
        {servers}
        keepalive 16;
    }}
    server {{
        listen {host}:{port} ssl;
        ssl_certificate {folder}/chain.pem;
        ssl_certificate_key {folder}/chain.pem;
        ssl_protocols TLSv1.3;
        client_max_body_size 16m;
        location / {{
            proxy_pass http://fleet;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
    }}
}}
"""


class Process:
    """One of the processes that serve a folder."""

    def __init__(self, path: Path) -> None:
        self.path, self.port, self.page_port, self.process = path, free_port(), free_port(), None

    def start(self):
        command = [sys.executable, "-m", "fedldp", "server", "run", str(self.path)]
        command += ["--listen", f"{HOST}:{self.port}", "--page", f"{HOST}:{self.page_port}"]
        with (self.path / f"log-{self.port}").open("a") as log:
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            self.process = subprocess.Popen(command, stderr=log, env=environment)
        return self

    def wait(self):
        """Wait until it accepts connections."""
        until = time.monotonic() + PATIENCE
        while not accepts(self.port):
            assert self.process.poll() is None, (self.path / f"log-{self.port}").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        return self

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE)

    def cpu_seconds(self) -> float:
        """Return how much time it has computed."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class ProxiedFleet(ServerProcess):
    """A folder, its processes, and nginx before them: agents see the latter alone."""

    def __init__(self, path: Path, database: str, processes: int = 2, **entries) -> None:
        super().__init__(path, database=database, tls=False, **entries)
        self.processes = [Process(path) for _ in range(processes)]
        self.port = free_port()
        self.nginx = None
        self._folder = Path(tempfile.mkdtemp(prefix="fedldp-nginx-"))
        authority = trustme.CA()
        authority.cert_pem.write_to_path(path / "ca.pem")
        chain = authority.issue_cert(HOST).private_key_and_cert_chain_pem
        chain.write_to_path(self._folder / "chain.pem")

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.path / "ca.pem")

    def start(self):
        for each in self.processes:
            each.start()
        for each in self.processes:
            each.wait()
        servers = "\n".join(
            f"server {HOST}:{each.port} max_fails=1 fail_timeout=1s;" for each in self.processes
        )
        config = self._folder / "nginx.conf"
        names = {"folder": self._folder, "host": HOST, "port": self.port, "servers": servers}
        config.write_text(_CONFIG.format(**names))
        path = f"{os.environ.get('PATH', '')}:/usr/sbin"
        program = shutil.which("nginx", path=path)
        assert program, f"these tests need nginx: {INSTALL}"
        self.nginx = subprocess.Popen(
            [program, "-e", self._folder / "error.log", "-c", config, "-p", self._folder]
        )
        until = time.monotonic() + PATIENCE
        while not accepts(self.port):
            assert self.nginx.poll() is None, (self._folder / "error.log").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        return self

    def stop(self):
        for each in self.processes:
            each.stop()
        if self.nginx is not None:
            self.nginx.terminate()
            self.nginx.wait(PATIENCE)
        shutil.rmtree(self._folder, ignore_errors=True)


def accepts(port: int) -> bool:
    """Return whether somebody listens at a port."""
    with contextlib.suppress(OSError), socket.create_connection((HOST, port)):
        return True
    return False
