"""Random shapes at each function: an exception or results of the right length, and no panic.

``LOCKSTEP_SHAPES`` is the number of calls of each function; 150 without it.
"""

import array
import ctypes
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import lockstep_crypto as lockstep

CALLS = int(os.environ.get("LOCKSTEP_SHAPES", "150"))
WORKERS = lockstep.Workers(2)
#: What a call may raise. A panic is a BaseException and none of these.
REFUSALS = (TypeError, ValueError, BufferError, OverflowError, MemoryError)
ALGORITHMS = ["Ed25519", "P-256", "P-384", "X25519", "ML-DSA-44", "ML-KEM-512"]
WIDTHS = [0, 1, 8, 31, 32, 33, 48, 63, 64, 65, 72, 96, 97, 256, 768, 1312, 2420]
SCHEMES = ["Ed25519", "ES256", "ES384", "RS256", "PS256", "ML-DSA-44"]


def made(algorithm):
    secrets, _ = lockstep.generate_many(algorithm, 2)
    return [lockstep.PrivateKey.from_raw(algorithm, secret) for secret in secrets]


PRIVATE = [key for algorithm in ALGORITHMS for key in made(algorithm)]
PUBLIC = [key.public() for key in PRIVATE]


class Raises:
    """An object whose every special method fails."""

    def __len__(self):
        raise RuntimeError

    def __arrow_c_array__(self, requested_schema=None):
        raise TypeError

    __iter__ = __getitem__ = __array__ = __len__


class Capsules:
    """An object that exports what it is given to Arrow, with any length."""

    def __init__(self, name, exported, length=3):
        setattr(self, name, lambda requested_schema=None: exported)
        self.length = length

    def __len__(self):
        return self.length


def capsule(name):
    """A capsule of this name, which is kept alive, over zeros: a structure that was released."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    memory = ctypes.create_string_buffer(256)
    text = ctypes.c_char_p(name)
    found = make(ctypes.addressof(memory), text, None)
    KEPT.append((memory, text))
    return found


KEPT = []


def used():
    """Capsules that were read before."""
    pair = pa.array([b"x"] * 3).__arrow_c_array__()
    with_pair = Capsules("__arrow_c_array__", pair)
    lockstep.sign_many("Ed25519", PRIVATE[0], with_pair, workers=WORKERS)
    return with_pair


class Maker:
    """Makes columns of this number of rows; or of another number, or what is no column."""

    def __init__(self, random):
        self.random = random

    def one(self, choices):
        return choices[self.random.integers(len(choices))]

    def bytes(self, rows, width):
        """A matrix with a row for each item."""
        return self.random.integers(256, size=(rows, width), dtype=np.uint8)

    def column(self, rows, width=None):
        width = self.one(WIDTHS) if width is None else width
        kind = self.random.integers(10)
        if kind < 4:
            return self.matrix(rows, width)
        if kind < 7:
            return self.arrow(rows, width)
        if kind < 9:
            return self.sequence(rows, width)
        return self.nonsense(rows)

    def matrix(self, rows, width):
        """Buffers with two dimensions, in each layout; and with other ones."""
        data = self.bytes(rows, width)
        wide = self.bytes(rows, 2 * width + 1)
        flat = self.bytes(1, rows + width)[0]
        strided = np.lib.stride_tricks.as_strided
        return self.one([
            lambda: data,
            lambda: data[::-1],
            lambda: data[:, ::-1],
            lambda: wide[:, 1 : width + 1],
            lambda: wide[::-1, :width],
            lambda: wide[:, : 2 * width : 2],
            lambda: np.repeat(data, 3, axis=0)[::3],
            lambda: np.asfortranarray(data),
            lambda: self.bytes(width, rows).T,
            lambda: np.broadcast_to(data[:1], (rows, width)) if rows else data,
            lambda: np.broadcast_to(self.bytes(rows, 1), (rows, width)),
            # Rows that lie over each other, from the first one on and from the last one on.
            lambda: strided(flat, (rows, width), (1, 1)),
            lambda: strided(flat[rows:], (rows, width), (-1, 1)),
            lambda: strided(flat[rows + width :], (rows, 0), (0, 0)),
            lambda: np.frombuffer(data.tobytes(), np.uint8).reshape(rows, width),
            lambda: memoryview(data),
            lambda: ((ctypes.c_uint8 * width) * rows)(),
            lambda: data.astype(self.one([np.int8, np.bool_, np.uint16, np.float64, ">u4"])),
            lambda: data.reshape(rows, width, 1),
            lambda: data.reshape(-1),
            lambda: np.uint8(7) + np.zeros((), np.uint8),
            lambda: np.ma.MaskedArray(data),
            lambda: data.astype("S1"),
            lambda: np.ascontiguousarray(data).view(f"V{width}") if rows and width else data,
        ])()  # fmt: skip

    def arrow(self, rows, width):
        items = [bytes(row) for row in self.bytes(rows, width)]
        data = pa.py_buffer(b"".join(items))
        nulls = [None if self.random.integers(5) == 0 else item for item in items]
        zeros = pa.py_buffer(bytes(8 * (rows + 1)))
        make = self.one([
            lambda: pa.array(items, type=pa.binary()),
            lambda: pa.array(items, type=pa.large_binary()),
            lambda: pa.array(items, type=pa.binary_view()),
            lambda: pa.array(items, type=pa.binary(width)),
            lambda: pa.array(nulls, type=self.one([pa.binary(), pa.binary(width)])),
            lambda: pa.array([None] * rows, type=self.one([pa.binary(), pa.null()])),
            lambda: pa.array([b"before", *items, b"behind"])[1:-1],
            lambda: pa.array(items)[rows // 2 :],
            lambda: pa.chunked_array([items[:1], [], items[1:]], type=pa.binary()),
            lambda: pa.chunked_array([], type=pa.binary()),
            lambda: pa.array(items).dictionary_encode(),
            lambda: pa.array([list(item) for item in items], type=pa.list_(pa.uint8())),
            lambda: pa.array([list(item) for item in items], type=pa.list_(pa.uint8(), width)),
            lambda: pa.array([{"a": item} for item in items]),
            lambda: pa.array(range(rows)),
            lambda: pa.array(["text"] * rows),
            lambda: pa.table({"a": items}),
            # No memory for values of no bytes, and for no rows.
            lambda: pa.Array.from_buffers(pa.binary(), rows, [None, zeros, None]),
            lambda: pa.Array.from_buffers(pa.large_binary(), rows, [None, zeros, None]),
            lambda: pa.Array.from_buffers(pa.binary(0), rows, [None, None]),
            lambda: pa.Array.from_buffers(pa.binary(width), 0, [None, None]),
            lambda: pa.Array.from_buffers(pa.binary(), 0, [None, None, None]),
            # Offsets in any order, which lie in the data or before it.
            lambda: self.offsets(pa.binary(), np.int32, rows, data),
            lambda: self.offsets(pa.large_binary(), np.int64, rows, data),
            lambda: pa.chunked_array([self.offsets(pa.binary(), np.int32, rows, data)]),
            # No memory where there must be some.
            lambda: pa.Array.from_buffers(pa.binary(), rows, [None, None, data]),
            lambda: pa.Array.from_buffers(pa.large_binary(), rows, [None, None, data]),
            lambda: pa.Array.from_buffers(pa.binary(), rows, [None, zeros, data]),
            lambda: pa.Array.from_buffers(pa.binary(width), rows, [None, None]),
            lambda: pa.chunked_array(
                [pa.Array.from_buffers(pa.binary(), rows, [None, None, data])]
            ),
        ])  # fmt: skip
        try:
            return make()
        except pa.ArrowException:  # pyarrow refuses some of them itself.
            return pa.array(items, type=pa.binary())

    def offsets(self, kind, dtype, rows, data):
        offsets = self.random.integers(-3, data.size + 1, size=rows + 1).astype(dtype)
        if self.random.integers(2):
            offsets.sort()
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(offsets.tobytes()), data])

    def sequence(self, rows, width):
        items = [bytes(row) for row in self.bytes(rows, width)]
        wrong = self.one([None, 5, "text", [], np.zeros(3), memoryview(np.zeros(3))])
        return self.one([
            lambda: items,
            lambda: tuple(items),
            lambda: [self.one([bytes, bytearray, memoryview])(item) for item in items],
            lambda: [array.array("B", item) for item in items],
            lambda: [np.frombuffer(item, np.uint8)[::-1] for item in items],
            lambda: [item[: self.random.integers(width + 1)] for item in items],
            lambda: np.array([*items, None], dtype=object)[:-1],
            lambda: items[1:],
            lambda: [*items[1:], wrong],
            lambda: [wrong] * rows,
            lambda: [data for data in self.bytes(rows, width).reshape(rows, 1, width)],
        ])()  # fmt: skip

    def nonsense(self, rows):
        return self.one([
            lambda: None,
            lambda: rows,
            lambda: "text",
            lambda: b"x" * rows,
            lambda: bytearray(rows),
            lambda: {number: b"" for number in range(rows)},
            lambda: {b"x"},
            lambda: (b"x" for _ in range(rows)),
            lambda: range(rows),
            lambda: object(),
            lambda: bytes,
            lambda: Raises(),
            lambda: Capsules("__arrow_c_array__", None),
            lambda: Capsules("__arrow_c_array__", (1, 2)),
            lambda: Capsules("__arrow_c_array__", (capsule(b"other"), capsule(b"other"))),
            lambda: Capsules(
                "__arrow_c_array__", (capsule(b"arrow_schema"), capsule(b"arrow_array"))
            ),
            lambda: Capsules("__arrow_c_stream__", 7),
            lambda: Capsules("__arrow_c_stream__", capsule(b"arrow_array")),
            lambda: Capsules("__arrow_c_stream__", capsule(b"arrow_array_stream")),
            used,
        ])()  # fmt: skip

    def keys(self, rows, objects):
        """Keys and an index, or None."""
        count = int(self.one([1, 2, 3, rows]))
        # Often of one algorithm, of which there are two.
        place = 2 * int(self.random.integers(len(objects) // 2))
        same = [objects[place + number % 2] for number in range(count)]
        keys = self.one([
            lambda: objects[place],
            lambda: same,
            lambda: tuple(same),
            lambda: [self.one(objects) for _ in range(rows)],
            lambda: [*same[1:], self.one([None, 7, b"x", PUBLIC[0], PRIVATE[0]])],
            lambda: [],
            lambda: self.column(rows),
            lambda: self.nonsense(rows),
        ])()  # fmt: skip
        places = self.random.integers(count, size=rows)
        index = self.one([
            lambda: None,
            lambda: None,
            lambda: places,
            lambda: places.tolist(),
            lambda: places.astype(
                self.one([np.uint8, np.uint64, np.int16, ">u4", np.float32, np.bool_])
            ),
            lambda: np.repeat(places, 2)[::2],
            lambda: places[::-1],
            lambda: np.broadcast_to(np.uint32(0), rows),
            lambda: places[1:],
            lambda: places - 1,
            lambda: places + count,
            lambda: [1 << 32] * rows,
            lambda: [1 << 64] * rows,
            lambda: places.reshape(1, rows),
            lambda: pa.array(places),
            lambda: self.nonsense(rows),
        ])()  # fmt: skip
        return keys, index

    def rows(self):
        return int(self.one([0, 1, 2, 5, 64, 70]))

    def scheme(self):
        return self.one([*SCHEMES, *SCHEMES, "none", "", None, b"ES256"])

    def options(self):
        return {
            "encoding": self.one([*[None] * 8, "fixed", "der", "other", 7]),
            "prehashed": self.one([False, False, True, None, 1]),
            "workers": self.one([*[WORKERS] * 8, None, 2]),
        }


def length(column):
    """Number of rows of a column that was taken."""
    if isinstance(column, pa.Table):
        return column.num_rows
    shape = getattr(column, "shape", None)
    return len(column) if shape is None else shape[0]


def call(function, *arguments, **options):
    """Call a function; return its columns, or None where it refuses."""
    try:
        results = function(*arguments, **options)
    except REFUSALS:
        return None
    except RuntimeError as error:
        # What the argument itself raises.
        assert error.args == (), error
        return None
    results = results if isinstance(results, tuple) else (results,)
    for result in results:
        assert "internal" not in [lockstep.REASONS[code] for code in result.codes]
        assert len(result.codes) == len(results[0])
    for result in results:
        if isinstance(result, lockstep.Column):
            assert len(result.array) == len(result.lengths) == len(result)
            assert (result.lengths <= result.array.shape[1]).all()
    return results


@pytest.mark.parametrize("name", ["verify", "sign", "agree", "encapsulate", "decapsulate"])
def test_random_shapes_are_computed_or_refused(name):
    maker, computed, refused = Maker(np.random.default_rng(7)), 0, 0
    for _ in range(CALLS):
        rows = maker.rows()
        algorithm = maker.one([*ALGORITHMS, "none", None])
        options = {"workers": WORKERS}
        column = maker.column(rows)
        if name == "verify":
            keys, index = maker.keys(rows, PUBLIC)
            other = maker.column(rows)
            options = {"index": index, **maker.options()}
            if maker.random.integers(2):
                # The columns alone are at random.
                keys, options = PUBLIC[0], {"workers": WORKERS}
            found = call(lockstep.verify_many, maker.scheme(), keys, column, other, **options)
            assert found is None or len(found[0]) == length(other)
        elif name == "sign":
            keys, index = maker.keys(rows, PRIVATE)
            options = {"index": index, **maker.options()}
            found = call(lockstep.sign_many, maker.scheme(), keys, column, **options)
        elif name == "encapsulate":
            column = maker.column(rows, maker.one([800, 1184, 32]))
            algorithm = maker.one(["ML-KEM-512", "ML-KEM-768", "X25519MLKEM768", algorithm])
            found = call(lockstep.encapsulate_many, algorithm, column, **options)
        else:
            keys, index = maker.keys(rows, PRIVATE)
            if name == "decapsulate":
                algorithm = maker.one(["ML-KEM-512", algorithm])
                column = maker.column(rows, maker.one([768, 1088, None]))
            function = getattr(lockstep, f"{name}_many")
            found = call(function, algorithm, keys, column, index=index, **options)
        assert found is None or len(found[0]) == length(column)
        computed += found is not None
        refused += found is None
    assert computed > CALLS // 50 and refused > CALLS // 20, (computed, refused)


def test_rows_of_each_layout_are_the_right_bytes():
    """A signature of Ed25519 depends on all bytes of its message, and on nothing else."""
    maker, seen = Maker(np.random.default_rng(8)), 0
    for _ in range(CALLS):
        column = maker.matrix(maker.rows(), maker.one([0, 1, 8, 65]))
        found = call(lockstep.sign_many, "Ed25519", PRIVATE[0], column, workers=WORKERS)
        if found is None:
            continue
        rows = [bytes(row) for row in np.asarray(column)]
        expected = lockstep.sign_many("Ed25519", PRIVATE[0], rows, workers=WORKERS)
        assert found[0].to_list() == expected.to_list()
        seen += len(rows) > 0
    assert seen > CALLS // 10


def test_keys_and_workers_from_anything():
    maker = Maker(np.random.default_rng(9))
    for number in range(CALLS):
        data = maker.one([maker.bytes(1, maker.one(WIDTHS))[0].tobytes(), maker.nonsense(3)])
        algorithm = maker.one([*ALGORITHMS, "RSA", "none", None])
        for kind in [lockstep.PublicKey, lockstep.PrivateKey]:
            for arguments in [(kind.from_raw, algorithm, data), (kind.from_der, data)]:
                read(*arguments)
            for function in [kind.from_pem, kind.from_jwk]:
                read(function, data)
        read(lockstep.key_set, data)
        count = maker.one([0, 1, -1, 2.5, None, 1 << 64, 1 << 63, "7", number % 70])
        pairs = call_of_generate(algorithm, count)
        assert pairs is None or [len(half) for half in pairs] == [count, count]
        read(lockstep.Workers, maker.one([-1, 0, 1 << 40, 1 << 64, None, "2"]), algorithm)


def call_of_generate(algorithm, count):
    return call(lockstep.generate_many, algorithm, count, workers=WORKERS)


def read(function, *arguments):
    try:
        return function(*arguments)
    except REFUSALS:
        return None


#: 100 million rows over one, in 2 GiB of addresses. Each column of them would take 3 GB or more.
#: The number of rows at last is one for which there are no verdicts in any memory. ML-DSA has no
#: tables for frequent keys, which a build without optimisation looks for slowly.
HUGE = """
import resource, sys
import numpy as np, lockstep_crypto as lockstep

lockstep.generate_many("P-256", 1)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
limit = used + (2 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
own = lockstep.PrivateKey.from_raw("Ed25519", bytes(32))
peer = lockstep.PrivateKey.from_raw("X25519", bytes([7] * 32))
workers = lockstep.Workers(2)

class Enough(Exception):
    pass

def stop(done, total):
    raise Enough

def ends(function, *arguments, **options):
    try:
        function(*arguments, workers=workers, progress=stop, **options)
    except MemoryError:
        return "no memory"
    except Enough:
        return "stopped"
    return "computed"

def column(rows, width):
    return np.broadcast_to(np.zeros((1, width), np.uint8), (rows, width))

for rows in [100_000_000, 1 << 45]:
    texts, raw = column(rows, 64), column(rows, 32)
    keys, long = column(rows, 1312), column(rows, 2420)
    print(ends(lockstep.verify_many, "ML-DSA-44", keys, texts, long))
    print(ends(lockstep.sign_many, "Ed25519", own, texts))
    print(ends(lockstep.agree_many, "X25519", peer, raw))
    print(ends(lockstep.generate_many, "Ed25519", rows))
    print(ends(lockstep.encapsulate_many, "ML-KEM-512", column(rows, 800)))
index = np.broadcast_to(np.uint32(0), rows)
print(ends(lockstep.verify_many, "Ed25519", own.public(), texts, texts))
print(ends(lockstep.verify_many, "Ed25519", [own.public()], texts, texts, index=index))
print(ends(lockstep.sign_many, "RS256", own, texts))
"""


def test_a_hundred_million_rows_take_no_memory_of_their_own():
    run = subprocess.run([sys.executable, "-c", HUGE], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    verdicts, *others = run.stdout.splitlines()
    assert verdicts == "stopped" and others == ["no memory"] * 12
