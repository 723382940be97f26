"""Public-key operations on whole arrays, computed in lockstep on the vector units of the CPU.

Each function takes columns: lists of ``bytes``, two-dimensional NumPy arrays of ``uint8``, or Arrow
columns of binary values (pyarrow, Polars, DuckDB, pandas). An item that is malformed gets a reason;
the others get their results.
"""

from __future__ import annotations

import contextlib

import numpy as np

from . import _native
from ._native import PrivateKey, PublicKey, Workers, __version__

__all__ = [
    "Column",
    "PrivateKey",
    "PublicKey",
    "REASONS",
    "SCHEMES",
    "Verdicts",
    "Workers",
    "__version__",
    "agree_many",
    "decapsulate_many",
    "encapsulate_many",
    "generate_many",
    "key_set",
    "sign_many",
    "verify_many",
]

#: Names of the signature schemes.
SCHEMES = tuple(_native.schemes)
#: Name of each reason, by its code. Code 0 means that there is a result, or a good signature.
REASONS = ("",) + tuple(name for _, name, _ in _native.reasons())
_TEXTS = ("",) + tuple(text for _, _, text in _native.reasons())


class _Coded:
    """Items with a code each: 0, or the number of a reason."""

    def __init__(self, codes):
        self.codes = np.frombuffer(codes, dtype=np.uint8)

    def __len__(self):
        return len(self.codes)

    @property
    def valid(self):
        """NumPy array of booleans: whether each signature is good, or each result is there."""
        return self.codes == 0

    def all(self):
        """Return whether all items are valid."""
        return not self.codes.any()

    def reason(self, number):
        """Return why an item is not valid, or None."""
        return _TEXTS[self.codes[number]] or None

    def failures(self):
        """Return the number of each item that is not valid, with the name of its reason."""
        rows = np.flatnonzero(self.codes)
        return [(i, REASONS[code]) for i, code in zip(rows.tolist(), self.codes[rows].tolist())]


class Verdicts(_Coded):
    """Verdicts of a call, in the order of its items.

    ``numpy.asarray(verdicts)`` is an array of booleans, and ``pyarrow.array(verdicts)`` too.
    """

    def __array__(self, dtype=None, copy=None):
        return self.valid if dtype is None else self.valid.astype(dtype)

    def __arrow_array__(self, type=None):
        import pyarrow

        return pyarrow.array(self.valid, type=type)

    def __getitem__(self, number):
        found = self.codes[number] == 0
        return bool(found) if np.ndim(found) == 0 else found

    def __iter__(self):
        return iter(self.valid.tolist())

    def __repr__(self):
        good = len(self) - int(np.count_nonzero(self.codes))
        return f"Verdicts({good} of {len(self)} valid)"


class Column(_Coded):
    """Results of a call, in the order of its items.

    ``column[i]`` is ``bytes``, or raises ValueError where there is no result. ``column.array`` has
    a row for each item and is no copy.
    """

    def __init__(self, output):
        super().__init__(output.codes())
        self._output = output

    @property
    def array(self):
        """NumPy array of uint8 with a row for each item; it cannot be changed.

        A result that is shorter than the row, or not there, is followed by zeros.
        """
        return np.asarray(memoryview(self._output))

    @property
    def lengths(self):
        """Length of each result; 0 where there is none."""
        return np.frombuffer(self._output.lengths(), dtype=np.uint32)

    def __getitem__(self, number):
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        number = range(len(self))[number]
        return self._output.get(number)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def to_list(self):
        """Return the results as ``bytes``, None where there is none."""
        return [None if code else self._output.get(i) for i, code in enumerate(self.codes)]

    def to_arrow(self):
        """Return an Arrow array of binary values, null where there is none."""
        import pyarrow

        rows, width = self.array.shape
        if width and not self.codes.any() and (self.lengths == width).all():
            data = pyarrow.py_buffer(memoryview(self._output))
            kind = pyarrow.binary(width)
            return pyarrow.Array.from_buffers(kind, rows, [None, data])
        return pyarrow.array(self.to_list(), type=pyarrow.binary())

    def __repr__(self):
        rows, width = self.array.shape
        return f"Column({rows} results of {width} bytes)"


_default = None


def _workers(workers):
    global _default
    if workers is not None:
        return workers
    # Two threads may each make one, which does no harm. A lock could stay held in a forked child.
    if _default is None:
        _default = Workers()
    return _default


@contextlib.contextmanager
def _progress(progress, total, unit):
    """Yield a function that is told how many items are done, or None."""
    if not progress:
        yield None
    elif callable(progress):
        yield lambda done: progress(done, total)
        progress(total, total)
    else:
        from tqdm.auto import tqdm

        with tqdm(total=total, unit=unit, unit_scale=True) as bar:
            yield lambda done: bar.update(done - bar.n)
            bar.update(total - bar.n)


def _index(index):
    if index is None:
        return None
    # A repeated place becomes memory here, or there is none for it.
    array = np.asarray(index, order="C")
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError("index must be a column of integers")
    if array.size and (array.min() < 0 or array.max() > 0xFFFFFFFF):
        row = int(np.flatnonzero((array < 0) | (array > 0xFFFFFFFF))[0])
        raise ValueError(f"index[{row}] is {array[row]}, out of range")
    return np.ascontiguousarray(array, dtype=np.uint32)


def verify_many(
    scheme,
    keys,
    messages,
    signatures,
    *,
    index=None,
    encoding=None,
    prehashed=False,
    workers=None,
    progress=None,
):
    """Check signatures of one scheme; return :class:`Verdicts`.

    ``scheme`` is one of :data:`SCHEMES`. ``keys`` is a :class:`PublicKey` for all items, a list
    with one for each item, a list with ``index`` (for each item the place of its key), or a column
    with the bytes of a key for each item, as :meth:`PublicKey.from_raw` takes them. ``encoding`` is
    ``"fixed"`` or, for ECDSA, ``"der"``. With ``prehashed``, messages are digests.
    """
    with _progress(progress, len(signatures), "sig") as told:
        codes = _native.verify(
            scheme,
            keys,
            _index(index),
            messages,
            signatures,
            encoding,
            prehashed,
            _workers(workers),
            told,
        )
    return Verdicts(codes)


def sign_many(
    scheme,
    keys,
    messages,
    *,
    index=None,
    encoding=None,
    prehashed=False,
    workers=None,
    progress=None,
):
    """Sign messages by one scheme; return a :class:`Column` of signatures.

    ``keys`` is a :class:`PrivateKey` for all items, a list with one for each item, or a list with
    ``index``: for each item the place of its key.
    """
    with _progress(progress, len(messages), "sig") as told:
        output = _native.sign(
            scheme, keys, _index(index), messages, encoding, prehashed, _workers(workers), told
        )
    return Column(output)


def agree_many(algorithm, keys, peers, *, index=None, workers=None, progress=None):
    """Agree on secrets by X25519, P-256 or P-384; return a :class:`Column`.

    ``peers`` is a column of public keys, as :meth:`PublicKey.from_raw` takes them.
    """
    with _progress(progress, len(peers), "op") as told:
        output = _native.agree(algorithm, keys, _index(index), peers, _workers(workers), told)
    return Column(output)


def generate_many(algorithm, count, *, workers=None, progress=None):
    """Make key pairs; return a :class:`Column` of private keys and one of public keys."""
    with _progress(progress, count, "key") as told:
        secrets, publics = _native.generate(algorithm, count, _workers(workers), told)
    return Column(secrets), Column(publics)


def encapsulate_many(algorithm, peers, *, workers=None, progress=None):
    """Send a secret to each public key; return :class:`Column` s of ciphertexts and of secrets."""
    with _progress(progress, len(peers), "op") as told:
        ciphertexts, secrets = _native.encapsulate(algorithm, peers, _workers(workers), told)
    return Column(ciphertexts), Column(secrets)


def decapsulate_many(algorithm, keys, ciphertexts, *, index=None, workers=None, progress=None):
    """Find the secret of each ciphertext; return a :class:`Column`."""
    with _progress(progress, len(ciphertexts), "op") as told:
        output = _native.decapsulate(
            algorithm, keys, _index(index), ciphertexts, _workers(workers), told
        )
    return Column(output)


def key_set(text):
    """Read a set of JSON Web Keys; return a dictionary of names (``kid``) and public keys.

    Keys without a name, and keys of other algorithms, are left out. Of two keys with one name, the
    first one counts.
    """
    keys = {}
    for name, key, _ in PublicKey.from_jwk_set(text):
        if name is not None and key is not None:
            keys.setdefault(name, key)
    return keys
