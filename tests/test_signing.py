"""Signed documents: one text, one key, one format, and nothing else passes."""

import base64
import datetime
import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedldp import signing
from fedldp.errors import DomainError, WireError
from fedldp.signing import PrivateKey, PublicKey, PublicKeys, read_unverified, sign, verify
from fedldp.vehicle import canonical

FORMAT = "fedldp greeting 1"
DOCUMENT = {"format": FORMAT, "hello": "wörld", "expires": "2027-03-01T12:00:00Z", "n": [1, 2.5]}
NOON = datetime.datetime(2027, 3, 1, 12, tzinfo=datetime.UTC)
SECOND = datetime.timedelta(seconds=1)


def key_of(seed):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return PrivateKey(Ed25519PrivateKey.from_private_bytes(seed))


# The first key of RFC 8032, section 7.1.
KEY = key_of(bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"))
OTHER = key_of(bytes(32))
TEXT = sign(KEY, DOCUMENT)


def test_the_key_is_that_of_the_rfc():
    assert KEY.public.raw.hex() == (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    )
    assert KEY.signature(b"").hex() == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
        "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )


def test_a_signed_text_is_canonical_json_with_the_signed_bytes_at_its_end():
    assert verify(KEY.public, TEXT, FORMAT) == DOCUMENT
    assert TEXT == canonical(json.loads(TEXT)) == sign(KEY, dict(reversed(DOCUMENT.items())))
    assert TEXT.endswith(f'"signed":{canonical(DOCUMENT)}}}')
    assert json.loads(TEXT)["key"] == KEY.public.fingerprint


def test_another_key_is_refused():
    with pytest.raises(WireError, match="not signed by the expected key"):
        verify(OTHER.public, TEXT, FORMAT)
    # With the expected name, but the signature of another key.
    forged = sign(OTHER, DOCUMENT).replace(OTHER.public.fingerprint, KEY.public.fingerprint)
    with pytest.raises(WireError, match="the signature is wrong"):
        verify(KEY.public, forged, FORMAT)


def test_another_format_is_refused_although_the_signature_is_right():
    with pytest.raises(WireError, match="another format"):
        verify(KEY.public, TEXT, "fedldp greeting 2")
    with pytest.raises(DomainError, match="format"):
        sign(KEY, {"hello": "world"})


def test_it_expires_by_the_clock_of_the_reader():
    assert verify(KEY.public, TEXT, FORMAT, now=NOON - SECOND) == DOCUMENT
    for now in (NOON, NOON + SECOND):
        with pytest.raises(WireError, match=r"expired.*2027-03-01T12:00:00Z"):
            verify(KEY.public, TEXT, FORMAT, now=now)
    zone = datetime.timezone(datetime.timedelta(hours=2))
    with pytest.raises(WireError, match="expired"):
        verify(KEY.public, TEXT, FORMAT, now=datetime.datetime(2027, 3, 1, 14, tzinfo=zone))


@pytest.mark.parametrize("expires", [None, 7, "", "2027-03-01", "2027-3-1T12:00:00Z", "never"])
def test_without_a_valid_time_it_has_expired(expires):
    text = sign(KEY, {"format": FORMAT, "expires": expires})
    with pytest.raises(WireError):
        verify(KEY.public, text, FORMAT, now=NOON)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + "\n",
        lambda text: " " + text,
        lambda text: text.replace(":", ": ", 1),
        lambda text: text.replace("fedldp signed 1", "fedldp signed 2"),
        lambda text: text.replace("\\u00f6", "ö"),
        lambda text: text[:-1],
        lambda _: "",
        lambda _: "null",
        lambda text: json.dumps(json.loads(text)),
        lambda text: json.dumps(dict(reversed(json.loads(text).items())), separators=(",", ":")),
        lambda text: text.replace('{"format"', '{"extra":1,"format"', 1),
        lambda text: text.replace('"signed":{', '"signed":{},"signed":{', 1),
        lambda text: text.replace(KEY.public.fingerprint, KEY.public.fingerprint.upper()),
        lambda text: text + " " * signing.MOST_BYTES,
    ],
)
def test_there_is_one_text_only(change):
    changed = change(TEXT)
    assert changed != TEXT
    with pytest.raises(WireError):
        verify(KEY.public, changed, FORMAT)


def test_a_document_that_is_not_canonical_is_refused_even_if_it_is_signed():
    for signed in ('{"format": "fedldp greeting 1"}', '{"a":1,"a":2,"format":"fedldp greeting 1"}'):
        text = signing._write(KEY.public, KEY.signature(signed.encode()), signed)
        with pytest.raises(WireError, match="canonical"):
            verify(KEY.public, text, FORMAT)


def test_a_signature_has_one_form():
    """Base64 has four spare bits at its end; and adding the group's order to S changes nothing."""
    signature = json.loads(TEXT)["signature"]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    last = alphabet[alphabet.index(signature[85]) + 1]
    twin = f"{signature[:85]}{last}=="
    assert base64.b64decode(twin) == base64.b64decode(signature)
    order = 2**252 + 27742317777372353535851937790883648493
    raw = base64.b64decode(signature)
    larger = raw[:32] + (int.from_bytes(raw[32:], "little") + order).to_bytes(32, "little")
    for each in (twin, base64.b64encode(larger).decode()):
        with pytest.raises(WireError, match=r"only form|signature is wrong"):
            verify(KEY.public, TEXT.replace(signature, each), FORMAT)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(TEXT) - 1), st.integers(1, 127))
def test_every_altered_character_is_noticed(place, change):
    altered = TEXT[:place] + chr(ord(TEXT[place]) ^ change) + TEXT[place + 1 :]
    with pytest.raises(WireError):
        verify(KEY.public, altered, FORMAT)


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_only_wire_errors_escape(text):
    for act in (
        lambda: verify(KEY.public, text, FORMAT),
        lambda: read_unverified(text, FORMAT),
        lambda: PublicKey.from_text(text),
        lambda: signing.parse_time(text),
    ):
        with pytest.raises(WireError):
            act()


def test_nothing_is_parsed_before_the_signature_is_checked(monkeypatch):
    altered = TEXT.replace("2.5", "2.6")
    monkeypatch.setattr(json, "loads", lambda *_: pytest.fail("it was parsed"))
    with pytest.raises(WireError, match="the signature is wrong"):
        verify(KEY.public, altered, FORMAT)


def test_a_document_that_is_too_long_is_not_signed():
    with pytest.raises(DomainError, match="at most 1048576 bytes"):
        sign(KEY, {"format": FORMAT, "text": "x" * signing.MOST_BYTES})


def test_keys_are_files(tmp_path):
    KEY.save(tmp_path / "operator.key")
    KEY.public.save(tmp_path / "operator.pub")
    assert (tmp_path / "operator.key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "operator.pub").read_text() == f"{KEY.public.text}\n"
    assert PublicKey.load(tmp_path / "operator.pub") == KEY.public
    assert PrivateKey.load(tmp_path / "operator.key").public == KEY.public
    assert KEY.public.fingerprint[:16] in repr(KEY)
    with pytest.raises(FileExistsError):
        OTHER.save(tmp_path / "operator.key")


def test_a_key_may_have_a_passphrase(tmp_path):
    path = tmp_path / "operator.key"
    KEY.save(path, "open sesame")
    assert signing.is_encrypted(path)
    assert PrivateKey.load(path, "open sesame").public == KEY.public
    for wrong in ("", "sesame", None):
        with pytest.raises(DomainError, match="passphrase"):
            PrivateKey.load(path, wrong)
    KEY.save(tmp_path / "plain.key")
    assert not signing.is_encrypted(tmp_path / "plain.key")


def test_other_files_are_not_keys(tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pem = ec.generate_private_key(ec.SECP384R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = tmp_path / "key"
    for data, what in ((pem, "must be an Ed25519 key"), (b"no", "not a private key")):
        path.write_bytes(data)
        with pytest.raises(DomainError, match=what):
            PrivateKey.load(path)
    path.write_bytes(b"x" * (1 << 20))
    for load in (PrivateKey.load, PublicKey.load):
        with pytest.raises(DomainError, match="too long"):
            load(path)
        with pytest.raises(DomainError, match="cannot be read"):
            load(tmp_path / "missing")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ed25519",
        KEY.public.text.replace("ed25519", "rsa"),
        KEY.public.text + " comment",
        KEY.public.text.replace(" ", "  "),
        f"ed25519 {base64.b64encode(bytes(31)).decode()}",
        f"{KEY.public.text}\n{OTHER.public.text}",
    ],
)
def test_a_public_key_has_one_form(text):
    with pytest.raises(WireError, match="not a public key"):
        PublicKey.from_text(text)


def test_a_public_key_of_another_format_is_told_what_is_expected():
    with pytest.raises(WireError, match="expected one line, 'ed25519 <base64 of 32 bytes>'"):
        PublicKey.from_text("-----BEGIN PUBLIC KEY-----")


def test_several_keys_are_a_file(tmp_path):
    """While keys change, the old one and the new one are valid."""
    both = PublicKeys((KEY.public, OTHER.public))
    (tmp_path / "operator.pub").write_text(both.text)
    assert PublicKeys.load(tmp_path / "operator.pub") == both
    assert verify(both, TEXT, FORMAT) == DOCUMENT
    assert verify(PublicKeys(both.keys[::-1]), TEXT, FORMAT) == DOCUMENT
    third = PrivateKey.generate()
    with pytest.raises(WireError, match=rf"{both.keys[0].fingerprint[:16]}\.\.\. or "):
        verify(both, sign(third, DOCUMENT), FORMAT)
    forged = sign(third, DOCUMENT).replace(third.public.fingerprint, KEY.public.fingerprint)
    with pytest.raises(WireError, match="the signature is wrong"):
        verify(both, forged, FORMAT)
    KEY.public.save(tmp_path / "operator.pub")
    assert PublicKeys.load(tmp_path / "operator.pub").keys == KEY.public.keys == (KEY.public,)
    assert signing.signer_fingerprint(TEXT) == KEY.public.fingerprint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        f"{KEY.public.text}\n\n",
        f"{KEY.public.text}\n\n{OTHER.public.text}\n",
        f"{KEY.public.text}\r\n{OTHER.public.text}\r\n",
        f"{KEY.public.text}\n{KEY.public.text}\n",
        f"{KEY.public.text} {OTHER.public.text}\n",
        f"{KEY.public.text}\n# the old one\n",
    ],
)
def test_a_file_of_keys_has_one_form(text):
    with pytest.raises(WireError, match="not a"):
        PublicKeys.from_text(text)


def test_cryptography_is_imported_when_it_is_used():
    code = "import sys, fedldp.signing; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
