"""Whose certificates are trusted, and what is said where one is not."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

import certifi
import pytest
import truststore

from callsheet.errors import ConfigError, NotSent
from callsheet.service.client import Client
from callsheet.service.transport import tls_context
from tests.servers.sockets import certificate, json_reply, serve
from tests.service.asking import KEY, run

VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
BALANCE = json_reply({"currency": "USD", "balance": "1.0000"})


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_each_variable_names_authorities(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pem = certificate(tmp_path)
    monkeypatch.setenv(name, str(pem))
    with serve(BALANCE, tls=pem) as server:
        assert run(server.url, lambda client: client.balance()) == 1


def test_the_authorities_of_all_variables_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Package managers set one of them by themselves; what a company sets beside it counts, too."""
    monkeypatch.setenv("SSL_CERT_FILE", certifi.where())
    pem = certificate(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(pem))
    with serve(BALANCE, tls=pem) as server:
        assert run(server.url, lambda client: client.balance()) == 1


@pytest.mark.parametrize("name", VARIABLES)
def test_authorities_that_are_not_there_are_named_with_their_variable(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, str(tmp_path / "gone.pem"))
    with pytest.raises(
        ConfigError, match=f"^{name} names {tmp_path}/gone.pem, which is not there$"
    ) as caught:
        Client("https://service.test", KEY)
    assert caught.value.hint == (
        f"{name} names the certificates that TLS trusts; without it, those of the system are trusted."
    )
    Client("http://service.test", KEY)  # which needs none


@pytest.mark.parametrize("content", [b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nAA\n"])
def test_a_file_without_certificates_is_named_with_its_variable(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd.pem").write_bytes(content)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "odd.pem"))
    with pytest.raises(
        ConfigError, match=r"REQUESTS_CA_BUNDLE names .*odd\.pem, which is no file of certifi"
    ):
        Client("https://service.test", KEY)


def test_folders_of_authorities_are_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a list of folders, those that are there count. OpenSSL finds a file by the hash of its subject."""
    pem = certificate(tmp_path)
    (tmp_path / "88d0bdcb.0").symlink_to(pem)
    monkeypatch.setenv("SSL_CERT_DIR", f"{tmp_path / 'gone'}:{tmp_path}")
    with serve(BALANCE, tls=pem) as server:
        assert run(server.url, lambda client: client.balance()) == 1


def test_without_variables_the_systems_authorities_are_trusted() -> None:
    context = tls_context()
    assert context.check_hostname
    if not isinstance(context, truststore.SSLContext):
        assert sys.platform == "linux"
        assert context.cert_store_stats()["x509_ca"] > 0


def test_a_certificate_that_is_not_trusted_is_said_before_the_address(tmp_path: Path) -> None:
    with serve(BALANCE, tls=certificate(tmp_path)) as server, pytest.raises(NotSent) as caught:
        run(server.url, lambda client: client.balance())
    assert "SSLCertVerificationError" in caught.value.message
    said, variable, address = caught.value.hint.partition("SSL_CERT_FILE")
    assert said.startswith("The server's certificate is not trusted: self-signed certificate.")
    assert variable
    assert server.url in address
    assert server.requests == []


def test_a_server_without_tls_is_said_before_the_address() -> None:
    def answer_in_plain_text() -> None:
        with listener.accept()[0] as connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.recv(65536)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_in_plain_text)
        thread.start()
        with pytest.raises(NotSent) as caught:
            run(f"https://127.0.0.1:{listener.getsockname()[1]}", lambda client: client.balance())
        thread.join()
    assert caught.value.hint.startswith("What answers there does not speak TLS")
