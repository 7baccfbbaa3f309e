"""Whom the endpoint admits: a gateway whose key is in the folder now, and who can sign with it."""

import os
from base64 import b64encode
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from endpoints import GATEWAY, KEY, fresh_key, public, signed
from flwr.common import constant
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

from fedldp.fleet.server import admission
from fedldp.fleet.server.admission import Gateways


def raw(headers):
    return [(name.encode(), value.encode()) for name, value in headers.items()]


@pytest.fixture
def admits(tmp_path):
    (tmp_path / "gateway-1.pub").write_bytes(GATEWAY)
    return Gateways(tmp_path)


def test_admits_what_flower_signs(admits):
    time = datetime.now(UTC).isoformat()
    headers = {
        FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(public_key_to_bytes(KEY.public_key())).decode(),
        constant.TIMESTAMP_HEADER: time,
        FLEET_HTTP_SIGNATURE_HEADER: b64encode(sign_message(KEY, time.encode())).decode(),
    }
    assert admits(raw(headers))


def test_the_window_is_that_of_flower():
    assert constant.TIMESTAMP_TOLERANCE + constant.SYSTEM_TIME_TOLERANCE == admission.OLDEST
    assert constant.SYSTEM_TIME_TOLERANCE == admission.AHEAD


@pytest.mark.parametrize(
    ("seconds", "is_admitted"), [(0, True), (-300, True), (-306, False), (60, False)]
)
def test_a_signature_is_good_for_a_while(admits, seconds, is_admitted):
    time = datetime.now(UTC) + timedelta(seconds=seconds)
    assert admits(raw(signed(KEY, time.isoformat()))) is is_admitted


@pytest.mark.parametrize(
    "change",
    [
        {"flwr-public-key": ""},
        {"flwr-public-key": "x" * 300},
        {"flwr-signature": ""},
        {"flwr-signature": "c2ln/+=="},
        {"flwr-signature": "no base64: \xff"},
        {"flwr-signature": signed(fresh_key())["flwr-signature"]},
        {"flwr-timestamp": ""},
        {"flwr-timestamp": "yesterday"},
        {"flwr-timestamp": "\xff"},
        {"flwr-timestamp": datetime.now(UTC).replace(tzinfo=None).isoformat()},
        {"flwr-timestamp": "0001-01-01T00:00:00+23:59"},
        {"flwr-timestamp": "9999-12-31T23:59:59-23:59"},
        {"flwr-timestamp": datetime.now(UTC).isoformat()},
    ],
    ids=range(13),
)
def test_refuses_headers_that_were_tampered_with(admits, change):
    assert admits(raw(signed(KEY)))
    assert not admits(raw(signed(KEY) | change))


def test_a_time_that_its_key_signed_must_be_readable(admits):
    for time in ("yesterday", "\xe9", "2026-11-15T17:25:29", "9999-12-31T23:59:59-23:59"):
        assert not admits(raw(signed(KEY, time)))


@pytest.mark.parametrize("name", ["flwr-public-key", "flwr-timestamp", "flwr-signature"])
def test_refuses_a_header_that_is_missing_or_stands_twice(admits, name):
    headers = signed(KEY)
    twice = [*raw(headers), (name.upper().encode(), headers[name].encode())]
    assert not admits(twice)
    del headers[name]
    assert not admits(raw(headers))


def test_a_key_that_is_replaced_in_its_file_is_revoked_at_once(tmp_path, admits):
    """The folder's time does not change, and here not even the file's does."""
    path, fresh = tmp_path / "gateway-1.pub", fresh_key()
    assert admits(raw(signed(KEY)))
    before, folder = path.stat(), tmp_path.stat()
    with path.open("r+b") as file:
        file.write(public(fresh))
        file.truncate()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert tmp_path.stat().st_mtime_ns == folder.st_mtime_ns
    assert not admits(raw(signed(KEY)))


def test_the_key_that_replaces_it_is_admitted_within_a_second(tmp_path, admits, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(admission, "monotonic", lambda: clock[0])
    fresh = fresh_key()
    assert admits(raw(signed(KEY)))
    (tmp_path / "gateway-1.pub").write_bytes(public(fresh))
    assert not admits(raw(signed(fresh)))  # the folder was read just now
    clock[0] += admission.LOOK
    assert admits(raw(signed(fresh)))
    assert not admits(raw(signed(KEY)))


def test_strangers_do_not_make_it_read_the_folder_each_time(admits, monkeypatch):
    clock, reads = [0.0], []
    content = admission._content
    monkeypatch.setattr(admission, "monotonic", lambda: clock[0])
    monkeypatch.setattr(admission, "_content", lambda path: reads.append(path) or content(path))
    for _ in range(100):
        assert not admits(raw(signed(KEY) | {"flwr-public-key": "x"}))
    assert len(reads) == 1


def test_a_key_that_is_in_two_files_goes_with_the_last(tmp_path, admits):
    (tmp_path / "copy.pub").write_bytes(GATEWAY)
    assert admits(raw(signed(KEY)))
    (tmp_path / "copy.pub").unlink()
    assert admits(raw(signed(KEY)))
    (tmp_path / "gateway-1.pub").unlink()
    assert not admits(raw(signed(KEY)))
    tmp_path.rmdir()
    assert not admits(raw(signed(KEY)))


def test_an_invalid_key_admits_nobody(tmp_path, admits):
    other = Ed25519PrivateKey.generate().public_key()
    (tmp_path / "b.pub").write_bytes(b"\xff no key")
    (tmp_path / "c.pub").write_bytes(other.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    assert admits(raw(signed(KEY)))
    assert not admits([])


# A gateway that changes its key.


def test_both_keys_are_admitted_until_the_next_one_is_used(tmp_path, admits):
    fresh = fresh_key()
    admission.upcoming(tmp_path, "gateway-1").write_bytes(public(fresh))
    assert admission.gateways(tmp_path) == ["gateway-1"]
    assert admits(raw(signed(KEY)))
    assert admits(raw(signed(fresh)))
    admits.used(raw(signed(KEY)))
    assert admits(raw(signed(KEY)))
    assert len(list(tmp_path.iterdir())) == 2
    admits.used(raw(signed(fresh)))
    assert [path.name for path in tmp_path.iterdir()] == ["gateway-1.pub"]
    assert not admits(raw(signed(KEY)))
    assert admits(raw(signed(fresh)))
    admits.used(raw(signed(fresh)))
    assert admits(raw(signed(fresh)))


def test_a_folder_that_cannot_be_changed_keeps_both_keys(tmp_path, admits, monkeypatch, caplog):
    fresh = fresh_key()
    admission.upcoming(tmp_path, "gateway-1").write_bytes(public(fresh))

    def replace(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "replace", replace)
    for _ in range(3):
        assert admits(raw(signed(fresh)))
        admits.used(raw(signed(fresh)))
    assert admits(raw(signed(KEY)))
    [record] = caplog.records  # said once
    assert "the old key is still valid: Permission denied." in record.getMessage()
