"""Ed25519 on the standard library, against package cryptography and the vectors of RFC 8032."""

import hashlib
import random

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedldp import vehicle

# RFC 8032, section 7.1: the secret key, the public key, the message and its signature.
RFC_8032 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9"
        "b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f1"
        "1d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984d"
        "c6594a7c15e9716ed28dc027beceea1ec40a",
    ),
    (
        "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        hashlib.sha512(b"abc").hexdigest(),
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431"
        "e0303dca179c138ac17ad9bef1177331a704",
    ),
]
SMALL_ORDER = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
]


def key_pair(rng):
    private = Ed25519PrivateKey.from_private_bytes(rng.randbytes(32))
    return private, private.public_key().public_bytes_raw()


def by_cryptography(public, signature, message):
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@pytest.mark.parametrize(("secret", "public", "message", "signature"), RFC_8032)
def test_the_vectors_of_rfc_8032(secret, public, message, signature):
    private = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret))
    key = private.public_key().public_bytes_raw()
    message, signature = bytes.fromhex(message), bytes.fromhex(signature)
    assert private.sign(message) == signature  # the vectors are typed correctly
    assert key.hex() == public
    assert vehicle.is_signed(key, signature, message)
    assert not vehicle.is_signed(key, signature, message + b"\0")


def test_random_signatures_and_damage_are_judged_as_by_cryptography():
    rng = random.Random(1)
    for length in range(40):
        private, public = key_pair(rng)
        message = rng.randbytes(length)
        signature = private.sign(message)
        assert vehicle.is_signed(public, signature, message)
        damaged = bytearray(public + signature + message)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        case = bytes(damaged[:32]), bytes(damaged[32:96]), bytes(damaged[96:])
        assert vehicle.is_signed(*case) is by_cryptography(*case) is False


def test_another_form_of_a_valid_signature_is_refused():
    private, public = key_pair(random.Random(2))
    signature = private.sign(b"a question")
    s = int.from_bytes(signature[32:], "little")
    for multiple in range(1, 9):
        other = (s + multiple * vehicle.ORDER).to_bytes(32, "little")
        assert not vehicle.is_signed(public, signature[:32] + other, b"a question")
    assert not vehicle.is_signed(public, signature[:-1], b"a question")
    assert not vehicle.is_signed(public, signature + b"\0", b"a question")
    assert not vehicle.is_signed(public + b"\0", signature, b"a question")
    assert not vehicle.is_signed(public[:-1], signature, b"a question")


@pytest.mark.parametrize("key", SMALL_ORDER)
def test_a_key_of_small_order_signs_nothing(key):
    """With such a key, R = key and s = 0 are a signature of one message in eight, or of all."""
    key = bytes.fromhex(key)
    order = vehicle.point(key)
    assert order is not None
    for _ in range(3):
        order = vehicle.doubled(order)
    assert order[0] == 0  # eight times the point is the identity
    assert order[1] == order[2]
    forgeries = [key + bytes(32), bytes.fromhex(SMALL_ORDER[0]) + bytes(32)]
    messages = [bytes([number]) for number in range(64)]
    accepted = [by_cryptography(key, f, message) for f in forgeries for message in messages]
    assert any(accepted)  # so it is this check that refuses them
    assert not any(vehicle.is_signed(key, f, message) for f in forgeries for message in messages)


@pytest.mark.parametrize("y", [*range(19), (1 << 255) - 1 - vehicle.FIELD])
def test_a_point_has_one_encoding(y):
    for sign in (0, 1):
        data = (vehicle.FIELD + y + (sign << 255)).to_bytes(32, "little")
        assert vehicle.point(data) is None
    # x = 0 has no sign.
    assert vehicle.point((1 + (1 << 255)).to_bytes(32, "little")) is None


def test_points_are_on_the_curve_and_half_of_all_numbers_encode_one():
    rng, found = random.Random(3), 0
    for _ in range(200):
        data = rng.getrandbits(256).to_bytes(32, "little")
        point = vehicle.point(data)
        if point is not None:
            found += 1
            x, y, _, t = point
            left, right = y * y - x * x - 1, vehicle.CURVE * x * x * y * y
            assert (left - right) % vehicle.FIELD == 0
            assert t == x * y % vehicle.FIELD
            assert (x & 1, y) == (data[31] >> 7, int.from_bytes(data, "little") & ((1 << 255) - 1))
    assert 60 < found < 140  # 100 are expected, with a deviation of 7: false alarm below 1e-7
