"""Recipes of the pages, each with a peer that makes or checks the data."""

import base64
import hashlib
import json
import shutil
import subprocess

import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

import lockstep_crypto as lockstep


def test_passkeys():
    """Assertions of WebAuthn, which the package fido2 checks one by one."""
    fido2 = pytest.importorskip("fido2")
    del fido2
    from fido2.cose import ES256

    count = 100
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(8)]
    authenticator = hashlib.sha256(b"example.org").digest() + b"\x05" + (7).to_bytes(4, "big")
    rows = []
    for number in range(count):
        challenge = base64.urlsafe_b64encode(hashlib.sha256(b"%d" % number).digest()).decode()
        client = {"type": "webauthn.get", "challenge": challenge, "origin": "https://example.org"}
        client = json.dumps(client).encode()
        message = authenticator + hashlib.sha256(client).digest()
        signature = keys[number % 8].sign(message, ec.ECDSA(hashes.SHA256()))
        ES256.from_cryptography_key(keys[number % 8].public_key()).verify(message, signature)
        rows.append((number % 8, client, message, signature))

    points = [
        key.public_key().public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
        )
        for key in keys
    ]
    public = [lockstep.PublicKey.from_raw("P-256", point) for point in points]
    index = [row[0] for row in rows]
    messages = [authenticator + hashlib.sha256(row[1]).digest() for row in rows]
    signatures = [row[3] for row in rows]
    verdicts = lockstep.verify_many(
        "ES256", public, messages, signatures, index=index, encoding="der"
    )
    assert verdicts.all()
    index[5] = 0
    verdicts = lockstep.verify_many(
        "ES256", public, messages, signatures, index=index, encoding="der"
    )
    assert verdicts.failures() == [(5, "wrong_signature")]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
def test_signed_urls(tmp_path):
    """URLs signed with RSA-2048, which openssl checks."""
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    own = lockstep.PrivateKey.from_pem(pem)
    urls = [b"https://files.example.org/%d?expires=1800000000" % number for number in range(50)]
    signatures = lockstep.sign_many("RS256", own, urls)
    assert signatures.all()
    (tmp_path / "key.pem").write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    for number in [0, 1, 49]:
        (tmp_path / "url").write_bytes(urls[number])
        (tmp_path / "signature").write_bytes(signatures[number])
        command = "openssl dgst -sha256 -verify key.pem -signature signature url"
        subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)


def test_a_table_of_ed25519_signatures():
    """Columns of a table of Arrow, of which the package cryptography checks a sample."""
    import pyarrow as pa
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    count = 5000
    secrets, publics = lockstep.generate_many("Ed25519", 50)
    keys = [lockstep.PrivateKey.from_raw("Ed25519", secret) for secret in secrets]
    index = np.arange(count) % 50
    texts = [b"row %d" % number for number in range(count)]
    signed = lockstep.sign_many("Ed25519", keys, texts, index=index)
    table = pa.table(
        {
            "key": pa.array([publics[place] for place in index], type=pa.binary(32)),
            "text": pa.array(texts, type=pa.binary()),
            "signature": signed.to_arrow(),
        }
    )
    assert lockstep.verify_many("Ed25519", table["key"], table["text"], table["signature"]).all()
    for row in table.slice(100, 20).to_pylist():
        Ed25519PublicKey.from_public_bytes(row["key"]).verify(row["signature"], row["text"])
