"""Compares lockstep_crypto with the PyPI packages cryptography and PyNaCl, in interleaved rounds.

    python bulk.py [--items 1000,10000] [--threads N] [--seconds S] [OPERATION...]

It prints one JSON document of the form of `lockstep-bench bulk --json`, whose gauges it lacks. Each
package gets the same keys and messages, and all results are checked before time is taken. `-verify`
and `-agree` have a key for each item, which each side reads from bytes in the time that is
measured. `-digests` has digests in place of messages. `-verify-few` has 16 keys and `-sign` has
one, which are read before. The packages get one item after the other on one thread; lockstep_crypto
gets all items in one call, on as many threads as `--threads` says.
"""

import argparse
import importlib.metadata
import json
import os
import statistics
import sys
import time

import nacl.bindings
import nacl.exceptions
import nacl.signing
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.backends.openssl import backend
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils, x25519

import lockstep_crypto as lockstep

try:
    from cryptography.hazmat.primitives.asymmetric import mldsa
except ImportError:
    mldsa = None

MESSAGE_BYTES = 64
FEW = 16
ROUNDS = 5
# The item whose message is changed after it was signed.
DAMAGED = 37

# Algorithm, scheme, curve and hash.
CURVES = {
    "p256": ("P-256", "ES256", ec.SECP256R1(), hashes.SHA256()),
    "p384": ("P-384", "ES384", ec.SECP384R1(), hashes.SHA384()),
}

KINDS = ["verify", "verify-few", "sign"]
OPERATIONS = [
    *(f"{key}-{kind}" for key in CURVES for kind in [*KINDS, "verify-digests", "agree"]),
    *(f"ed25519-{kind}" for kind in KINDS),
    "x25519",
    "rsa2048-verify-few",
    "rsa2048-sign",
    "rsa4096-sign",
    *(f"mldsa44-{kind}" for kind in KINDS),
]

# A call of lockstep_crypto lasts about half a second at most.
MOST = {"rsa2048-sign": 4000, "rsa4096-sign": 800, "mldsa44-sign": 5000}


class Absent(Exception):
    """A package does not have an operation."""


def spki(key):
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_bytes(serialization.Encoding.DER, form)


def pkcs8(key):
    encoding, form = serialization.Encoding.DER, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption())


class Data:
    """The keys, messages and signatures of an operation."""

    def __init__(self, operation, count):
        self.operation = operation
        self.key_name, _, self.what = operation.partition("-")
        self.is_rsa = self.key_name.startswith("rsa")
        self.has_digests = self.what == "verify-digests"
        length = CURVES[self.key_name][3].digest_size if self.has_digests else MESSAGE_BYTES
        self.messages = [os.urandom(length) for _ in range(count)]
        self.agrees = self.what in ["", "agree"]
        keys = {"verify-few": FEW, "sign": 1}.get(self.what, count + self.agrees)
        if self.is_rsa:
            self.scheme = "RS256"
            bits = int(self.key_name.removeprefix("rsa"))
            made = [rsa.generate_private_key(65537, bits) for _ in range(keys)]
            self.secrets = [pkcs8(key) for key in made]
            self.publics = [spki(key.public_key()) for key in made]
        else:
            names = {"ed25519": "Ed25519", "x25519": "X25519", "mldsa44": "ML-DSA-44"}
            schemes = {"ed25519": "Ed25519", "mldsa44": "ML-DSA-44"}
            if self.key_name in CURVES:
                self.algorithm, self.scheme = CURVES[self.key_name][:2]
            else:
                self.algorithm = names[self.key_name]
                self.scheme = schemes.get(self.key_name)
            secrets, publics = lockstep.generate_many(self.algorithm, keys)
            self.secrets, self.publics = secrets.to_list(), publics.to_list()
        self.index = [number % keys for number in range(count)]
        if self.what.startswith("verify"):
            keys = [self.private(secret) for secret in self.secrets]
            signed = lockstep.sign_many(
                self.scheme, keys, self.messages, index=self.index, prehashed=self.has_digests
            )
            self.signatures = signed.to_list()

    def private(self, secret):
        if self.is_rsa:
            return lockstep.PrivateKey.from_der(secret)
        return lockstep.PrivateKey.from_raw(self.algorithm, secret)

    def public(self, public):
        if self.is_rsa:
            return lockstep.PublicKey.from_der(public)
        return lockstep.PublicKey.from_raw(self.algorithm, public)


def of_lockstep(data, workers):
    """Returns a function that computes the items with these messages: verdicts, or bytes."""
    own = data.private(data.secrets[0])
    if data.agrees:
        peers = data.publics[1:]
        return lambda messages: lockstep.agree_many(data.algorithm, own, peers, workers=workers)
    if data.what == "sign":
        return lambda messages: lockstep.sign_many(data.scheme, own, messages, workers=workers)
    keys, index = data.publics, None
    if data.what == "verify-few":
        keys, index = [data.public(public) for public in data.publics], data.index
    return lambda messages: lockstep.verify_many(
        data.scheme, keys, messages, data.signatures, index=index, workers=workers,
        prehashed=data.has_digests,
    )  # fmt: skip


def each(data, read, verify, refused):
    """Verifies one item after the other."""
    few = None if data.what != "verify-few" else [read(public) for public in data.publics]

    def compute(messages):
        verdicts = []
        for number, message in enumerate(messages):
            key = read(data.publics[number]) if few is None else few[data.index[number]]
            try:
                verify(key, number, message)
                verdicts.append(True)
            except refused:
                verdicts.append(False)
        return verdicts

    return compute


def of_cryptography(data):
    """The same by the package cryptography."""
    if data.key_name in CURVES:
        return ecdsa_of_cryptography(data)
    if data.is_rsa:
        scheme = (padding.PKCS1v15(), hashes.SHA256())
        if data.what == "sign":
            key = serialization.load_der_private_key(data.secrets[0], None)
            return lambda messages: [key.sign(message, *scheme) for message in messages]

        def verify(key, number, message):
            key.verify(data.signatures[number], message, *scheme)

        return each(data, serialization.load_der_public_key, verify, InvalidSignature)
    if data.key_name == "x25519":
        own = x25519.X25519PrivateKey.from_private_bytes(data.secrets[0])
        read = x25519.X25519PublicKey.from_public_bytes
        return lambda messages: [own.exchange(read(peer)) for peer in data.publics[1:]]
    if data.key_name == "ed25519":
        private = ed25519.Ed25519PrivateKey.from_private_bytes
        public = ed25519.Ed25519PublicKey.from_public_bytes
    elif mldsa is None:
        raise Absent("this version has no ML-DSA")
    else:
        private = mldsa.MLDSA44PrivateKey.from_seed_bytes
        public = mldsa.MLDSA44PublicKey.from_public_bytes
    try:
        public(data.publics[0])
    except UnsupportedAlgorithm as error:
        raise Absent(str(error)) from error
    if data.what == "sign":
        key = private(data.secrets[0])
        return lambda messages: [key.sign(message) for message in messages]

    def verify(key, number, message):
        key.verify(data.signatures[number], message)

    return each(data, public, verify, InvalidSignature)


def ecdsa_of_cryptography(data):
    """Signatures are in DER, which is all that it takes."""
    _, _, curve, digest = CURVES[data.key_name]
    ecdsa = ec.ECDSA(utils.Prehashed(digest) if data.has_digests else digest)
    if data.what == "sign":
        key = ec.derive_private_key(int.from_bytes(data.secrets[0]), curve)
        return lambda messages: [key.sign(message, ecdsa) for message in messages]
    if data.agrees:
        return agreement_of_cryptography(data)
    der = [to_der(signature) for signature in data.signatures]

    def verify(key, number, message):
        key.verify(der[number], message, ecdsa)

    return each(data, lambda public: point(curve, public), verify, InvalidSignature)


def point(curve, public):
    return ec.EllipticCurvePublicKey.from_encoded_point(curve, public)


def agreement_of_cryptography(data):
    curve, ecdh = CURVES[data.key_name][2], ec.ECDH()
    own = ec.derive_private_key(int.from_bytes(data.secrets[0]), curve)
    return lambda messages: [own.exchange(ecdh, point(curve, peer)) for peer in data.publics[1:]]


def to_der(signature):
    half = len(signature) // 2
    r, s = int.from_bytes(signature[:half]), int.from_bytes(signature[half:])
    return utils.encode_dss_signature(r, s)


def of_nacl(data):
    """The same by PyNaCl; None where it does not have the algorithm."""
    if data.key_name == "x25519":
        own, product = data.secrets[0], nacl.bindings.crypto_scalarmult
        return lambda messages: [product(own, peer) for peer in data.publics[1:]]
    if data.key_name != "ed25519":
        return None
    if data.what == "sign":
        key = nacl.signing.SigningKey(data.secrets[0])
        return lambda messages: [key.sign(message).signature for message in messages]

    def verify(key, number, message):
        key.verify(message, data.signatures[number])

    return each(data, nacl.signing.VerifyKey, verify, nacl.exceptions.BadSignatureError)


def check(data, name, compute):
    """Insists that a side is right, and that it refuses the one message that was not signed."""
    results = list(compute(data.messages))
    if len(results) != len(data.messages):
        raise SystemExit(f"{name} has lost results of {data.operation}")
    if data.what.startswith("verify"):
        damaged = list(data.messages)
        damaged[DAMAGED] = bytes(len(damaged[DAMAGED]))
        refused = [number for number, right in enumerate(compute(damaged)) if not right]
        right = all(results) and refused == [DAMAGED]
    elif data.what == "sign":
        right = are_signatures(data, name, results)
    else:
        right = results == of_cryptography(data)(data.messages)
    if not right:
        raise SystemExit(f"{name}: wrong results of {data.operation}: please report this")


def are_signatures(data, name, signatures):
    """Checks by the package cryptography, or by lockstep_crypto where that has no such key."""
    if data.key_name == "mldsa44":
        public = data.public(data.publics[0])
        return lockstep.verify_many(data.scheme, public, data.messages, signatures).all()
    if data.key_name in CURVES and name == "cryptography":
        half = CURVES[data.key_name][2].key_size // 8
        pairs = [utils.decode_dss_signature(der) for der in signatures]
        signatures = [r.to_bytes(half) + s.to_bytes(half) for r, s in pairs]
    checking = object.__new__(Data)
    checking.__dict__.update(data.__dict__, what="verify-few", signatures=signatures)
    return all(of_cryptography(checking)(data.messages))


def quartiles(values):
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, high]


def measure(data, sides, seconds, threads):
    """Returns the rows of an operation: each side computes all items in each round."""
    rates = {name: [] for name in sides}
    start = time.perf_counter()
    while len(rates["lockstep"]) < ROUNDS or time.perf_counter() - start < seconds * len(sides):
        for name, compute in sides.items():
            begin = time.perf_counter()
            compute(data.messages)
            rates[name].append(len(data.messages) / (time.perf_counter() - begin))
    rows = []
    for name, own in rates.items():
        ratios = [first / other for first, other in zip(rates["lockstep"], own, strict=True)]
        rows.append({
            "op": data.operation, "impl": name, "threads": threads if name == "lockstep" else 1,
            "items": len(data.messages), "ops_per_s": round(statistics.median(own), 1),
            "ops_per_s_quartiles": [round(value, 1) for value in quartiles(own)],
            "ratio": round(statistics.median(ratios), 3),
            "ratio_quartiles": [round(value, 3) for value in quartiles(ratios)],
            "slices": len(own),
        })  # fmt: skip
    return rows


def numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("operations", nargs="*", choices=[*OPERATIONS, []], metavar="OPERATION")
    parser.add_argument("--items", type=numbers, default=[1000, 10000])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each figure")
    options = parser.parse_args()
    if min(options.items) <= DAMAGED:
        parser.error(f"--items takes numbers above {DAMAGED}")
    workers = lockstep.Workers(options.threads)
    rows, skipped = [], []
    for operation in options.operations or OPERATIONS:
        for count in sorted({min(count, MOST.get(operation, count)) for count in options.items}):
            print(f"measuring {operation}, {count} items …", file=sys.stderr)
            data, sides = Data(operation, count), {}
            makers = {
                "lockstep": lambda data: of_lockstep(data, workers),
                "cryptography": of_cryptography,
                "PyNaCl": of_nacl,
            }
            for name, make in makers.items():
                try:
                    compute = make(data)
                except Absent as absent:
                    why = {"op": operation, "impl": name, "why": str(absent)}
                    skipped.extend([why] if why not in skipped else [])
                    continue
                if compute is None:
                    continue
                if name == "lockstep" and is_absent(compute(data.messages)):
                    why = {"op": operation, "impl": name, "why": "internal"}
                    skipped.extend([why] if why not in skipped else [])
                    break
                check(data, name, compute)
                sides[name] = compute
            if "lockstep" in sides:
                rows += measure(data, sides, options.seconds, options.threads)
    packages = ["cryptography", "PyNaCl"]
    with open("/proc/cpuinfo") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    print(json.dumps({
        "machine": {
            "cpu": models[0] if models else "unknown CPU", "cpus": len(os.sched_getaffinity(0)),
            "backend": workers.lanes, "openssl": backend.openssl_version_text(),
        },
        "message_bytes": MESSAGE_BYTES,
        "libraries": {package: importlib.metadata.version(package) for package in packages},
        "rows": rows, "skipped": skipped,
    }))  # fmt: skip


def is_absent(results):
    """Whether lockstep_crypto does not have the operation yet."""
    return [why for _, why in results.failures()] == ["internal"] * len(results)


if __name__ == "__main__":
    main()
