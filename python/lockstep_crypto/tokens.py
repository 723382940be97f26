"""JSON Web Tokens (RFC 7515, RFC 7519) that are checked by a set of keys, many at once.

As a program, it checks a file with a token in each line::

    python -m lockstep_crypto.tokens --keys jwks.json tokens.txt
"""

from __future__ import annotations

import argparse
import binascii
import importlib.util
import json
import sys

from . import SCHEMES, PublicKey, verify_many

__all__ = ["verify_tokens"]

#: Algorithm of the keys of each scheme.
_ALGORITHMS = {
    "ES256": "P-256",
    "ES384": "P-384",
    "Ed25519": "Ed25519",
    "EdDSA": "Ed25519",
    "RS256": "RSA",
    "RS384": "RSA",
    "RS512": "RSA",
    "PS256": "RSA",
    "PS384": "RSA",
    "PS512": "RSA",
}


_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_LETTERS = bytes.maketrans(b"-_+/=", b"+/   ")


def _decoded(text):
    """Decode base64url without padding; raise ValueError for other characters."""
    text = text.translate(_LETTERS) + b"=" * (-len(text) % 4)
    return binascii.a2b_base64(text, strict_mode=True)


class _Keys:
    """Keys by their names, and why others cannot be used."""

    def __init__(self, keys):
        self.keys, self.refused, self.schemes = {}, {}, {}
        if not isinstance(keys, (str, bytes)):
            self.keys = dict(keys)
            return
        for (name, key, reason), entry in zip(
            PublicKey.from_jwk_set(keys), json.loads(keys)["keys"]
        ):
            if name is None or name in self.keys or name in self.refused:
                continue  # Of two keys with one name, the first one counts.
            if key is None:
                self.refused[name] = reason
            else:
                self.keys[name] = key
                self.schemes[name] = entry.get("alg")


def _header(text, known, algorithms):
    """Return the scheme and the name of the key of a header, or a reason."""
    keys = known.keys
    try:
        header = json.loads(_decoded(text).decode("utf-8"))
    except (ValueError, RecursionError):
        return "malformed_token"
    if not isinstance(header, dict):
        return "malformed_token"
    # A critical extension that is not understood (RFC 7515, 4.1.11); a payload in another form.
    if "crit" in header or header.get("b64", True) is not True:
        return "unknown_extension"
    scheme, name = header.get("alg"), header.get("kid")
    if not isinstance(scheme, str) or scheme not in algorithms:
        return "other_algorithm"
    if name is None and len(keys) == 1:
        (name,) = keys
    key = keys.get(name) if isinstance(name, str) else None
    if key is None:
        is_known = isinstance(name, str) and name in known.refused
        return "unusable_key" if is_known else "unknown_key"
    if known.schemes.get(name) not in (None, scheme):
        return "other_algorithm"
    if key.algorithm != _ALGORITHMS[scheme]:
        return "other_algorithm"
    return scheme, name


def verify_tokens(tokens, keys, *, algorithms=None, workers=None, progress=None):
    """Check the signatures of tokens; return a list with None for a good one, or a reason.

    ``tokens`` is a list of ``str`` or ``bytes``. ``keys`` is a set of JSON Web Keys as text, or a
    dictionary of names and public keys. ``algorithms`` are the schemes that are accepted; all by
    default, each with keys of its own algorithm alone. Claims, as the time of expiry, are not
    checked.
    """
    known = _Keys(keys)
    keys = known.keys
    if isinstance(algorithms, str):
        raise TypeError("algorithms must be a list of names")
    algorithms = frozenset(_ALGORITHMS if algorithms is None else algorithms)
    unknown = algorithms - _ALGORITHMS.keys()
    if unknown:
        raise ValueError(f"unknown algorithms: {', '.join(sorted(unknown))}; there are {SCHEMES}")
    places = {name: place for place, name in enumerate(keys)}
    reasons = [None] * len(tokens)
    headers, groups = {}, {}
    for row, token in enumerate(tokens):
        if isinstance(token, str) and token.isascii():
            token = token.encode("ascii")
        if not isinstance(token, bytes):
            reasons[row] = "malformed_token"
            continue
        message, dot, signature = token.rpartition(b".")
        head, other, body = message.partition(b".")
        if not dot or not other or body.translate(None, _ALPHABET):
            reasons[row] = "malformed_token"
            continue
        found = headers.get(head)
        if found is None:
            found = headers[head] = _header(head, known, algorithms)
            if len(headers) > 100_000:  # As many as strangers like to send.
                headers.clear()
        if isinstance(found, str):
            reasons[row] = found
            continue
        scheme, name = found
        try:
            signature = _decoded(signature)
        except ValueError:
            reasons[row] = "malformed_signature"
            continue
        group = groups.setdefault("Ed25519" if scheme == "EdDSA" else scheme, ([], [], [], []))
        for column, value in zip(group, (row, places[name], message, signature)):
            column.append(value)
    objects = list(keys.values())
    for scheme, (rows, index, messages, signatures) in groups.items():
        verdicts = verify_many(
            scheme,
            objects,
            messages,
            signatures,
            index=index,
            workers=workers,
            progress=progress,
        )
        for place, reason in verdicts.failures():
            reasons[rows[place]] = reason
    return reasons


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m lockstep_crypto.tokens",
        description="Check the signatures of a file of JSON Web Tokens, one in each line.",
    )
    parser.add_argument("--keys", required=True, help="file with a set of JSON Web Keys")
    parser.add_argument("--quiet", action="store_true", help="no progress bar, no list of failures")
    parser.add_argument("file", help="file of tokens; - is the standard input")
    options = parser.parse_args(arguments)
    try:
        with open(options.keys, encoding="utf-8") as file:
            keys = file.read()
        with open(0 if options.file == "-" else options.file, "rb") as file:
            lines = [line.strip() for line in file]
        _Keys(keys)
    except (OSError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    has_bar = not options.quiet and importlib.util.find_spec("tqdm") is not None
    reasons = verify_tokens(lines, keys, progress=has_bar)
    failed = [(row, reason) for row, reason in enumerate(reasons, 1) if reason]
    if not options.quiet:
        for row, reason in failed[:20]:
            print(f"{options.file}:{row}: {reason}")
        if len(failed) > 20:
            print(f"... and {len(failed) - 20} more")
    print(f"{len(lines) - len(failed)} of {len(lines)} tokens have a good signature")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
