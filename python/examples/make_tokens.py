"""Write a set of JSON Web Keys and a file of tokens by them: `make_tokens.py COUNT DIRECTORY`.

One token in 10,000 has the signature of another one.
"""

import json
import pathlib
import sys
from base64 import urlsafe_b64encode

import lockstep_crypto as lockstep

KEYS = {"es256": ("ES256", "P-256"), "es384": ("ES384", "P-384"), "eddsa": ("EdDSA", "Ed25519")}


def text(data):
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def jwk(name, algorithm, raw):
    if algorithm == "Ed25519":
        return {"kid": name, "kty": "OKP", "crv": algorithm, "x": text(raw)}
    half = len(raw) // 2
    x, y = text(raw[1 : 1 + half]), text(raw[1 + half :])
    return {"kid": name, "kty": "EC", "crv": algorithm, "x": x, "y": y}


def main(count, directory):
    directory = pathlib.Path(directory)
    public, tokens = [], [None] * count
    for place, (name, (scheme, algorithm)) in enumerate(KEYS.items()):
        secrets, publics = lockstep.generate_many(algorithm, 1)
        public.append(jwk(name, algorithm, publics[0]))
        key = lockstep.PrivateKey.from_raw(algorithm, secrets[0])
        header = text(json.dumps({"alg": scheme, "kid": name}).encode())
        rows = range(place, count, len(KEYS))
        claims = (json.dumps({"sub": f"user {row}", "exp": 4102444800}).encode() for row in rows)
        messages = [f"{header}.{text(claim)}".encode() for claim in claims]
        signatures = list(lockstep.sign_many("Ed25519" if scheme == "EdDSA" else scheme, key, messages))
        for number, row in enumerate(rows):
            other = number - 1 if number % 10_000 == 9_999 else number
            tokens[row] = f"{messages[number].decode()}.{text(signatures[other])}"
    (directory / "jwks.json").write_text(json.dumps({"keys": public}))
    (directory / "tokens.txt").write_text("\n".join(tokens) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
