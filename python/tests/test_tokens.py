"""Tokens that PyJWT makes and checks."""

import base64
import json
import subprocess
import sys

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from lockstep_crypto.tokens import verify_tokens


@pytest.fixture(scope="session")
def keys():
    private = {
        "es256": ("ES256", ec.generate_private_key(ec.SECP256R1())),
        "es384": ("ES384", ec.generate_private_key(ec.SECP384R1())),
        "eddsa": ("EdDSA", ed25519.Ed25519PrivateKey.generate()),
        "rs256": ("RS256", rsa.generate_private_key(65537, 2048)),
        "ps256": ("PS256", rsa.generate_private_key(65537, 3072)),
    }
    kinds = {"e": ECAlgorithm, "ed": OKPAlgorithm, "r": RSAAlgorithm, "p": RSAAlgorithm}
    public = []
    for name, (_, key) in private.items():
        kind = OKPAlgorithm if name == "eddsa" else kinds[name[0]]
        public.append({**json.loads(kind.to_jwk(key.public_key())), "kid": name})
    public.append({"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "other"})
    return private, json.dumps({"keys": public})


def made(private, count):
    names = list(private)
    tokens = []
    for number in range(count):
        name = names[number % len(names)]
        scheme, key = private[name]
        claims = {"sub": f"user {number}", "n": number}
        tokens.append(jwt.encode(claims, key, algorithm=scheme, headers={"kid": name}))
    return tokens


def accepted(token, public):
    """Return whether PyJWT accepts a token by a set of keys."""
    try:
        header = jwt.get_unverified_header(token)
        key = public[header["kid"]]
        jwt.decode(token, key, algorithms=[header["alg"]])
    except (jwt.PyJWTError, KeyError, ValueError, TypeError):
        return False
    return True


def test_tokens_have_the_verdict_of_pyjwt(keys):
    private, text = keys
    public = {name: key.public_key() for name, (_, key) in private.items()}
    tokens = made(private, 100)
    assert verify_tokens(tokens, text) == [None] * 100
    assert all(accepted(token, public) for token in tokens[:10])
    changed = []
    for number, token in enumerate(tokens):
        head, body, signature = token.split(".")
        other = tokens[(number + 5) % 100].split(".")
        match number % 7:
            case 0:
                token = f"{head}.{other[1]}.{signature}"
            case 1:
                token = f"{head}.{body}.{other[2]}"
            case 2:
                token = f"{head}.{body}."
            case 3:
                token = f"{head}.{body}"
            case 4:
                token = f"{head[:-3]}.{body}.{signature}"
            case 5:
                token = f"{head}.{body}.{signature[:-4]}"
            case _:
                pass
        changed.append(token)
    reasons = verify_tokens(changed, text)
    assert [reason is None for reason in reasons] == [accepted(token, public) for token in changed]
    assert any(reason is None for reason in reasons) and "wrong_signature" in reasons
    assert {"malformed_token", "malformed_signature"} <= set(reasons)


def test_a_header_decides_neither_the_key_s_algorithm_nor_none(keys):
    private, text = keys
    key = private["rs256"][1]
    other = jwt.encode({}, key, algorithm="RS256", headers={"kid": "es256"})
    nothing = jwt.encode({}, None, algorithm="none", headers={"kid": "es256"})
    secret = jwt.encode({}, "k" * 64, algorithm="HS256", headers={"kid": "es256"})
    unknown = jwt.encode({}, key, algorithm="RS256", headers={"kid": "nobody"})
    critical = jwt.encode({}, key, algorithm="RS256", headers={"kid": "rs256", "crit": ["b64"]})
    good = jwt.encode({}, key, algorithm="RS256", headers={"kid": "rs256"})
    assert verify_tokens([other, nothing, secret, unknown, critical, good], text) == [
        "other_algorithm",
        "other_algorithm",
        "other_algorithm",
        "unknown_key",
        "unknown_extension",
        None,
    ]
    assert verify_tokens([good], text, algorithms=["ES256"]) == ["other_algorithm"]
    with pytest.raises(ValueError, match="unknown algorithms: HS256"):
        verify_tokens([good], text, algorithms=["HS256"])


def test_no_token_hurts_another(keys):
    private, text = keys
    good = made(private, 1)[0]
    head, body, signature = good.split(".")

    def header(value):
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    bad = [
        f"{header(json.dumps({'alg': ['ES256'], 'kid': 'es256'}).encode())}.{body}.{signature}",
        f"{header(json.dumps({'alg': {}, 'kid': []}).encode())}.{body}.{signature}",
        f"{header(json.dumps({'alg': 'ES256', 'kid': 'es256'}).encode('utf-16'))}.{body}.{signature}",
        f"{header(b'[' * 100_000)}.{body}.{signature}",
        f"{head}.{body}é.{signature}",
        f"{head}.{body}?.{signature}",
        None,
        7,
        bytearray(good.encode()),
        "",
        "..",
    ]
    reasons = verify_tokens([good, *bad, good], text)
    assert reasons[0] is None and reasons[-1] is None
    assert all(isinstance(reason, str) for reason in reasons[1:-1])


@pytest.mark.parametrize(
    ("member", "value", "reason"),
    [
        ("use", "enc", "unusable_key"),
        ("key_ops", ["encrypt"], "unusable_key"),
        ("alg", "RS384", "other_algorithm"),
        ("n", "AA", "unusable_key"),
        ("use", "sig", None),
        ("alg", "RS256", None),
    ],
)
def test_a_key_is_used_as_its_set_says(keys, member, value, reason):
    private, text = keys
    entries = json.loads(text)["keys"]
    (entry,) = [entry for entry in entries if entry["kid"] == "rs256"]
    entry[member] = value
    token = jwt.encode({}, private["rs256"][1], algorithm="RS256", headers={"kid": "rs256"})
    assert verify_tokens([token], json.dumps({"keys": entries})) == [reason]


def test_a_file_of_tokens_is_checked_with_a_bar(keys, tmp_path):
    private, text = keys
    tokens = made(private, 200)
    (tmp_path / "jwks.json").write_text(text)
    (tmp_path / "tokens.txt").write_text("\n".join(tokens))
    command = [sys.executable, "-m", "lockstep_crypto.tokens", "--keys", "jwks.json", "tokens.txt"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "200 of 200 tokens have a good signature\n"
    assert "100%" in run.stderr
    tokens[7] = tokens[8].rpartition(".")[0] + "." + tokens[7].rpartition(".")[2]
    (tmp_path / "tokens.txt").write_text("\n".join(tokens))
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stdout.endswith("\n199 of 200 tokens have a good signature\n")
    assert run.stdout.startswith("tokens.txt:8: ")
    missing = [*command[:-2], "none.json", "tokens.txt"]
    run = subprocess.run(missing, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 2 and "No such file" in run.stderr
