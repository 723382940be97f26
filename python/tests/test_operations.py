"""Results beside the package cryptography, whose OpenSSL is the judge."""

import hashlib
import os

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils, x25519

import lockstep_crypto as lockstep

COUNT = 130  # More than two passes, and not a multiple of one.
HASHES = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}


@pytest.fixture(scope="session")
def rsa_key():
    return rsa.generate_private_key(65537, 2048)


def messages(count=COUNT):
    return [b"message %d" % number * (number % 5) for number in range(count)]


def public_der(key):
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.DER, form)


def private_der(key):
    encoding, form = serialization.Encoding.DER, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption())


def pss(digest, salt=None):
    salt = padding.PSS.DIGEST_LENGTH if salt is None else salt
    return padding.PSS(padding.MGF1(digest), salt)


def peer(scheme, rsa_key):
    """Return a new key of the package cryptography, and how it signs and checks."""
    digest = HASHES.get(scheme[2:])
    if scheme == "Ed25519":
        key = ed25519.Ed25519PrivateKey.generate()
        return key, lambda text: key.sign(text), key.public_key().verify
    if scheme.startswith("ES"):
        key = ec.generate_private_key(ec.SECP256R1() if scheme == "ES256" else ec.SECP384R1())
        check = lambda signature, text: key.public_key().verify(signature, text, ec.ECDSA(digest))
        return key, lambda text: key.sign(text, ec.ECDSA(digest)), check
    how = padding.PKCS1v15() if scheme.startswith("RS") else pss(digest)
    check = lambda signature, text: rsa_key.public_key().verify(signature, text, how, digest)
    return rsa_key, lambda text: rsa_key.sign(text, how, digest), check


CLASSIC = ["ES256", "ES384", "Ed25519", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]


@pytest.mark.parametrize("lanes", [None, "avx2", "portable"])
@pytest.mark.parametrize("scheme", CLASSIC)
def test_each_side_accepts_the_signatures_of_the_other(scheme, lanes, rsa_key):
    try:
        workers = lockstep.Workers(2, lanes)
    except ValueError:
        pytest.skip(f"this CPU has no {lanes}")
    encoding = "der" if scheme.startswith("ES") else None
    key, sign, check = peer(scheme, rsa_key)
    texts = messages(COUNT if lanes is None else 20)
    own = lockstep.PrivateKey.from_der(private_der(key))
    signed = lockstep.sign_many(scheme, own, texts, encoding=encoding, workers=workers)
    assert signed.all()
    for text, signature in zip(texts, signed):
        check(signature, text)
    public = lockstep.PublicKey.from_der(public_der(key))
    theirs = [sign(text) for text in texts]
    verdicts = lockstep.verify_many(
        scheme, public, texts, theirs, encoding=encoding, workers=workers
    )
    assert verdicts.all() and list(verdicts) == [True] * len(texts)
    theirs[3] = theirs[4]
    verdicts = lockstep.verify_many(
        scheme, public, texts, theirs, encoding=encoding, workers=workers
    )
    assert verdicts.failures() == [(3, "wrong_signature")]


@pytest.mark.parametrize("scheme", CLASSIC)
def test_mutated_signatures_have_the_verdict_of_openssl(scheme, rsa_key):
    """Bits that flip, bytes that go and come."""
    key, sign, check = peer(scheme, rsa_key)
    random = np.random.default_rng(7)
    text = b"a message"
    cases = [b"", b"\x00", b"\x30\x00", bytes(64), bytes(300)]
    for _ in range(400):
        signature = bytearray(sign(text))
        match random.integers(5):
            case 0:
                signature[random.integers(len(signature))] ^= 1 << random.integers(8)
            case 1:
                del signature[random.integers(len(signature))]
            case 2:
                signature.insert(random.integers(len(signature) + 1), random.integers(256))
            case 3:
                signature[random.integers(len(signature))] = random.choice([0, 0x7F, 0x80, 0xFF])
            case _:
                pass
        cases.append(bytes(signature))

    def is_good(signature):
        try:
            check(signature, text)
        except (InvalidSignature, ValueError):
            return False
        return True

    expected = [is_good(signature) for signature in cases]
    assert any(expected) and not all(expected)
    public = lockstep.PublicKey.from_der(public_der(key))
    found = lockstep.verify_many(
        scheme,
        public,
        [text] * len(cases),
        cases,
        encoding="der" if scheme.startswith("ES") else None,
    )
    assert list(found) == expected


@pytest.mark.parametrize("salt", [0, 20, 32, 222])
def test_salts_of_another_length_are_another_scheme(salt, rsa_key):
    signature = rsa_key.sign(b"text", pss(hashes.SHA256(), salt), hashes.SHA256())
    public = lockstep.PublicKey.from_der(public_der(rsa_key))
    assert lockstep.verify_many("PS256", public, [b"text"], [signature])[0] == (salt == 32)


def test_digests_stand_for_messages(rsa_key):
    key = ec.generate_private_key(ec.SECP256R1())
    own = lockstep.PrivateKey.from_der(private_der(key))
    digests = [hashlib.sha256(text).digest() for text in messages()]
    signed = lockstep.sign_many("ES256", own, digests, prehashed=True)
    by_message = lockstep.verify_many("ES256", own.public(), messages(), signed.to_list())
    assert by_message.all()
    how = ec.ECDSA(utils.Prehashed(hashes.SHA256()))
    der = lockstep.sign_many("ES256", own, digests, prehashed=True, encoding="der")
    for digest, signature in zip(digests, der):
        key.public_key().verify(signature, digest, how)
    short = lockstep.verify_many(
        "ES256", own.public(), [b"short"], [signed[0]], prehashed=True
    )
    assert short.failures() == [(0, "malformed_input")]
    with pytest.raises(ValueError, match="does not have this operation"):
        lockstep.verify_many("Ed25519", own.public(), digests, digests, prehashed=True)


@pytest.mark.parametrize(("algorithm", "scheme"), [("P-256", "ES256"), ("P-384", "ES384")])
def test_compressed_points_are_keys(algorithm, scheme):
    """In columns and as objects, beside the points that the package cryptography computes."""
    curve = ec.SECP256R1() if algorithm == "P-256" else ec.SECP384R1()
    secrets, publics = lockstep.generate_many(algorithm, COUNT)
    keys = [lockstep.PrivateKey.from_raw(algorithm, secret) for secret in secrets]
    length = len(secrets[0])
    compressed = [bytes([2 + point[-1] % 2]) + point[1 : 1 + length] for point in publics]
    signed = lockstep.sign_many(scheme, keys, messages())
    rows = np.array([list(point) for point in compressed], dtype=np.uint8)
    assert rows.shape == (COUNT, 1 + length)
    assert lockstep.verify_many(scheme, rows, messages(), signed.array).all()
    peers = compressed[1:] + compressed[:1]
    agreed = lockstep.agree_many(algorithm, keys, peers)
    whole = [publics[(number + 1) % COUNT] for number in range(COUNT)]
    assert agreed.to_list() == lockstep.agree_many(algorithm, keys, whole).to_list()
    random = np.random.default_rng(7)
    for point in compressed[:9] + [b"\x02" + random.bytes(length) for _ in range(9)]:
        try:
            theirs = ec.EllipticCurvePublicKey.from_encoded_point(curve, point)
        except ValueError:
            with pytest.raises(ValueError, match="does not parse"):
                lockstep.PublicKey.from_raw(algorithm, point)
            continue
        form = serialization.PublicFormat.UncompressedPoint
        expected = theirs.public_bytes(serialization.Encoding.X962, form)
        assert lockstep.PublicKey.from_raw(algorithm, point).raw() == expected
    rows[3, 0] ^= 1
    rows[4] = 0xFF
    found = lockstep.verify_many(scheme, rows, messages(), signed.array)
    assert found.failures() == [(3, "wrong_signature"), (4, "malformed_key")]


@pytest.mark.parametrize("algorithm", ["X25519", "P-256", "P-384"])
def test_both_sides_agree(algorithm):
    secrets, publics = lockstep.generate_many(algorithm, COUNT)
    keys = [lockstep.PrivateKey.from_raw(algorithm, secret) for secret in secrets]
    peers = [publics[(number + 1) % COUNT] for number in range(COUNT)]
    agreed = lockstep.agree_many(algorithm, keys, peers)
    assert agreed.all() and len(set(agreed)) == COUNT
    for number in range(0, COUNT, 17):
        if algorithm == "X25519":
            key = x25519.X25519PrivateKey.from_private_bytes(secrets[number])
            other = x25519.X25519PublicKey.from_public_bytes(peers[number])
            expected = key.exchange(other)
        else:
            curve = ec.SECP256R1() if algorithm == "P-256" else ec.SECP384R1()
            key = ec.derive_private_key(int.from_bytes(secrets[number], "big"), curve)
            other = ec.EllipticCurvePublicKey.from_encoded_point(curve, peers[number])
            expected = key.exchange(ec.ECDH(), other)
        assert agreed[number] == expected
    bad = [bytes(len(peers[0])), peers[1]]
    found = lockstep.agree_many(algorithm, keys[:2], bad)
    assert found.failures() == [(0, "malformed_key")]


@pytest.mark.parametrize("algorithm", ["ML-KEM-512", "ML-KEM-768", "ML-KEM-1024", "X25519MLKEM768"])
def test_secrets_that_are_sent_are_received(algorithm):
    secrets, publics = lockstep.generate_many(algorithm, 20)
    keys = [lockstep.PrivateKey.from_raw(algorithm, secret) for secret in secrets]
    ciphertexts, sent = lockstep.encapsulate_many(algorithm, publics.array)
    received = lockstep.decapsulate_many(algorithm, keys, ciphertexts.array)
    assert sent.to_list() == received.to_list() and len(set(sent)) == 20
    found = lockstep.decapsulate_many(algorithm, keys[:1], [b"short"])
    assert found.failures() == [(0, "malformed_input")]


@pytest.mark.parametrize("scheme", ["ML-DSA-44", "ML-DSA-65", "ML-DSA-87"])
def test_signatures_of_ml_dsa(scheme):
    secrets, publics = lockstep.generate_many(scheme, 3)
    keys = [lockstep.PrivateKey.from_raw(scheme, secret) for secret in secrets]
    index = [number % 3 for number in range(20)]
    texts = messages(20)
    signed = lockstep.sign_many(scheme, keys, texts, index=index)
    public = [lockstep.PublicKey.from_raw(scheme, key) for key in publics]
    assert lockstep.verify_many(scheme, public, texts, signed.array, index=index).all()
    other = [(place + 1) % 3 for place in index]
    assert not any(lockstep.verify_many(scheme, public, texts, signed.array, index=other))


def test_keys_of_another_algorithm_hurt_their_items_alone(rsa_key):
    one = lockstep.PrivateKey.from_raw("Ed25519", bytes(32))
    other = lockstep.PrivateKey.from_der(private_der(rsa_key))
    signed = lockstep.sign_many("Ed25519", [one, other, one], [b"a", b"b", b"c"])
    assert signed.failures() == [(1, "other_algorithm")]
    with pytest.raises(ValueError, match="item 1: the key is of another algorithm"):
        signed[1]
    assert signed.to_list()[1] is None and signed.to_arrow().null_count == 1
    keys = [one.public(), other.public(), one.public()]
    found = lockstep.verify_many("Ed25519", keys, [b"a", b"b", b"c"], [signed[0], signed[0], signed[2]])
    assert found.failures() == [(1, "other_algorithm")]


def test_an_unknown_device_is_told_in_a_line():
    with pytest.raises(ValueError) as raised:
        lockstep.Workers(devices=["opencl:99"])
    assert "\n" not in str(raised.value)


def test_a_device_computes_beside_threads():
    try:
        workers = lockstep.Workers(threads=1, devices=["opencl:0"], device_threshold=2)
    except ValueError as error:
        pytest.skip(str(error))
    key = ed25519.Ed25519PrivateKey.generate()
    texts = messages(2000)
    signatures = [key.sign(text) for text in texts]
    signatures[7] = bytes(64)
    public = lockstep.PublicKey.from_der(public_der(key))
    while workers.devices[0][1] == 0:
        verdicts = lockstep.verify_many("Ed25519", public, texts, signatures, workers=workers)
        assert [number for number, _ in verdicts.failures()] == [7]
    assert workers.devices[0][2] is None


def test_a_forked_child_opens_no_device():
    try:
        lockstep.Workers(devices=["opencl:0"])
    except ValueError as error:
        pytest.skip(str(error))
    child = os.fork()
    if child == 0:
        try:
            lockstep.Workers(devices=["opencl:0"])
        except ValueError as error:
            os._exit(0 if "forked" in str(error) else 2)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
