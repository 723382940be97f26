"""What a column may be, and what is refused before work begins."""

import array
import os
import pickle
import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pytest

import lockstep_crypto as lockstep

COUNT = 200
KEY = lockstep.PrivateKey.from_raw("Ed25519", bytes(range(32)))
TEXTS = [b"%08d" % number for number in range(COUNT)]
SIGNED = lockstep.sign_many("Ed25519", KEY, TEXTS)
LIST = SIGNED.to_list()


def check(messages, signatures, keys=None, **options):
    keys = KEY.public() if keys is None else keys
    return lockstep.verify_many("Ed25519", keys, messages, signatures, **options)


def matrix(rows):
    return np.array([list(row) for row in rows], dtype=np.uint8)


COLUMNS = {
    "list": lambda rows: rows,
    "tuple": tuple,
    "memoryviews": lambda rows: [memoryview(row) for row in rows],
    "bytearrays": lambda rows: [bytearray(row) for row in rows],
    "matrix": matrix,
    "reversed matrix": lambda rows: matrix(rows[::-1])[::-1],
    "wide matrix": lambda rows: np.hstack([matrix(rows), matrix(rows)])[:, : len(rows[0])],
    "objects": lambda rows: np.array(rows, dtype=object),
    "binary": lambda rows: pa.array(rows, type=pa.binary()),
    "large binary": lambda rows: pa.array(rows, type=pa.large_binary()),
    "binary view": lambda rows: pa.array(rows, type=pa.binary_view()),
    "fixed": lambda rows: pa.array(rows, type=pa.binary(len(rows[0]))),
    "sliced": lambda rows: pa.array([b"x"] + rows, type=pa.binary())[1:],
    "lists": lambda rows: pa.FixedSizeListArray.from_arrays(
        pa.array(matrix(rows).reshape(-1)), len(rows[0])
    ),
    "chunks": lambda rows: pa.chunked_array([rows[:7], [], rows[7:]], type=pa.binary()),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_of_each_kind_has_the_same_verdicts(kind):
    column = COLUMNS[kind]
    assert check(column(TEXTS), column(LIST)).all()
    wrong = LIST[1:] + LIST[:1]
    assert not check(column(TEXTS), column(wrong)).valid.any()
    raw = column([KEY.public().raw()] * COUNT)
    assert check(column(TEXTS), column(LIST), keys=raw).all()


@pytest.mark.parametrize("package", ["polars", "pandas", "duckdb"])
def test_columns_of_other_packages(package):
    module = pytest.importorskip(package)
    if package == "polars":
        frame = module.DataFrame({"text": TEXTS, "signature": LIST})
        columns = frame["text"], frame["signature"]
    elif package == "pandas":
        frame = module.DataFrame({"text": TEXTS, "signature": LIST})
        columns = frame["text"], frame["signature"]
    else:
        rows = pa.table({"text": TEXTS, "signature": LIST})
        found = module.sql("select text, signature from rows").to_arrow_table()
        columns = found["text"], found["signature"]
    assert check(*columns).all()


def test_fixed_columns_are_not_copied():
    """A column of 400 MB takes no memory of its own."""
    rows = 4_000_000
    code = f"""
import resource, numpy as np, lockstep_crypto as lockstep
texts = np.zeros(({rows}, 100), dtype=np.uint8)
texts += 1
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
workers = lockstep.Workers(1)
try:
    lockstep.verify_many("Ed25519", texts[:, :32], texts, texts[:, :64], workers=workers,
                         progress=lambda done, total: 1 / 0)
except ZeroDivisionError:
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    grown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(grown.stdout) < 40_000, "KiB"


def test_results_are_seen_without_a_copy():
    seen = SIGNED.array
    assert seen.shape == (COUNT, 64) and not seen.flags.owndata and not seen.flags.writeable
    assert bytes(seen[7]) == LIST[7]
    arrow = SIGNED.to_arrow()
    assert arrow.type == pa.binary(64) and arrow.to_pylist() == LIST
    assert check(TEXTS, seen).all() and check(TEXTS, arrow).all()


def test_nulls_are_verdicts_and_no_messages():
    texts = pa.array([None] + TEXTS[1:], type=pa.binary())
    assert check(texts, LIST).failures() == [(0, "malformed_signature")]
    signatures = pa.array(LIST[:5] + [None] + LIST[6:], type=pa.binary(64))
    assert check(TEXTS, signatures).failures() == [(5, "malformed_signature")]
    with pytest.raises(ValueError, match="messages has a null in row 0"):
        lockstep.sign_many("Ed25519", KEY, texts)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: check(TEXTS[1:], LIST), ValueError, "199 messages, 200 signatures"),
        (lambda: check(TEXTS, LIST, keys=[KEY.public()] * 3), ValueError, "3 keys for 200 items"),
        (lambda: check(b"x" * 200, LIST), TypeError, "messages must be a list of bytes"),
        (lambda: check(TEXTS, [*LIST[:9], "x", *LIST[10:]]), TypeError, r"signatures\[9\] must be"),
        (lambda: check(TEXTS, [*LIST[:9], None, *LIST[10:]]), TypeError, r"signatures\[9\] must be"),
        (lambda: check(TEXTS, pa.array(range(COUNT))), ValueError, "not of Int64"),
        (lambda: check(np.array(TEXTS), LIST), TypeError, "messages must be"),
        (lambda: check(TEXTS, np.ma.MaskedArray(matrix(LIST))), TypeError, "Python objects"),
        (lambda: check(TEXTS, matrix(LIST).T.copy()), ValueError, "200 messages, 64 signatures"),
        (lambda: check(TEXTS, np.asfortranarray(matrix(LIST))), ValueError, "side by side"),
        (lambda: check(TEXTS, matrix(LIST).astype(np.uint16)), TypeError, "signatures"),
        (lambda: check(TEXTS, LIST, keys=KEY), TypeError, "keys must be"),
        (lambda: check(TEXTS, LIST, keys=[KEY.public(), 1], index=[0] * COUNT), TypeError, r"keys\[1\]"),
        (lambda: check(TEXTS, LIST, keys=[KEY.public()], index=[0] * 9), ValueError, "9 places"),
        (lambda: check(TEXTS, LIST, keys=[KEY.public()], index=[1] * COUNT), ValueError, "there are 1 keys"),
        (lambda: check(TEXTS, LIST, keys=[KEY.public()], index=[-1] * COUNT), ValueError, "out of range"),
        (lambda: check(TEXTS, LIST, keys=[KEY.public()], index=["a"] * COUNT), TypeError, "integers"),
        (lambda: check(TEXTS, LIST, encoding="der"), ValueError, "only ECDSA"),
        (lambda: lockstep.verify_many("none", KEY.public(), TEXTS, LIST), ValueError, "unknown scheme"),
        (lambda: lockstep.sign_many("Ed25519", KEY.public(), TEXTS), TypeError, "PrivateKey"),
        (lambda: lockstep.generate_many("RSA", 1), ValueError, "does not have this operation"),
        (lambda: lockstep.generate_many("P-521", 1), ValueError, "unknown algorithm"),
        (lambda: lockstep.generate_many("P-256", 1 << 61), MemoryError, "no memory"),
        (lambda: lockstep.Workers(0), ValueError, "at least 1"),
        (lambda: lockstep.Workers(1, "sse2"), ValueError, "are not among"),
        (lambda: lockstep.PublicKey.from_pem(b"x"), ValueError, "PEM"),
        (lambda: lockstep.PublicKey.from_raw("P-256", bytes(64)), ValueError, "does not parse"),
        (lambda: pickle.dumps(KEY), TypeError, "pickle"),
    ],
)
def test_mistakes_are_named_before_work_begins(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_arrow_data_that_points_elsewhere_is_refused():
    offsets = np.arange(COUNT + 1, dtype=np.int32) * 8
    data = pa.py_buffer(b"".join(TEXTS))
    made = lambda offsets: pa.Array.from_buffers(
        pa.binary(), COUNT, [None, pa.py_buffer(offsets.tobytes()), data]
    )
    assert check(made(offsets), LIST).all()
    wrong = offsets.copy()
    wrong[COUNT // 2] = 1 << 30
    with pytest.raises(ValueError, match="messages: .*[Oo]ffset"):
        check(made(wrong), LIST)
    values = pa.array([1, None] + [3] * 6, type=pa.uint8())
    holes = pa.FixedSizeListArray.from_arrays(values, 4)
    with pytest.raises(ValueError, match="a null within a value"):
        lockstep.sign_many("Ed25519", KEY, holes)


def test_objects_of_polars_are_not_taken_for_their_addresses():
    polars = pytest.importorskip("polars")
    with pytest.raises(TypeError, match="Python objects"):
        lockstep.sign_many("Ed25519", KEY, polars.Series("x", TEXTS, dtype=polars.Object))


def test_a_message_that_changes_is_read_once():
    """Two signatures with one R and two S would reveal the private key."""
    texts = np.zeros((64, 1 << 16), np.uint8)
    stop = threading.Event()

    def change():
        while not stop.is_set():
            texts[:, -1] ^= 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        found = {}
        for _ in range(30):
            for signature in lockstep.sign_many("Ed25519", KEY, texts):
                found.setdefault(signature[:32], set()).add(signature[32:])
    finally:
        stop.set()
        thread.join()
    assert all(len(seconds) == 1 for seconds in found.values())


def test_keys_are_read_from_texts_with_other_blocks():
    import subprocess as run

    made = run.run("openssl ecparam -name prime256v1 -genkey".split(), capture_output=True)
    text = b"# a comment\n" + made.stdout + b"trailing text\n"
    key = lockstep.PrivateKey.from_pem(text)
    assert key.algorithm == "P-256"
    assert lockstep.PrivateKey.from_pem(text.decode()).public().raw() == key.public().raw()


def test_lanes_that_are_not_there_are_a_mistake():
    code = """
import lockstep_crypto as lockstep
try:
    lockstep.generate_many("P-256", 1)
except ValueError as error:
    print(error)
"""
    environment = {**os.environ, "LOCKSTEP_LANES": "avx512"}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert run.stdout == "LOCKSTEP_LANES names lanes that this CPU does not have\n"


def test_no_items_are_no_mistake():
    assert len(check([], [])) == 0 and check([], []).all()
    assert len(lockstep.sign_many("Ed25519", KEY, [])) == 0
    assert lockstep.generate_many("P-256", 0)[0].to_list() == []
    assert len(check(np.zeros((0, 8), np.uint8), np.zeros((0, 64), np.uint8))) == 0


def test_public_keys_can_be_pickled_and_private_ones_are_not_printed():
    for algorithm in ["P-256", "P-384", "Ed25519", "X25519", "ML-DSA-44", "X25519MLKEM768"]:
        _, publics = lockstep.generate_many(algorithm, 1)
        key = lockstep.PublicKey.from_raw(algorithm, publics[0])
        copy = pickle.loads(pickle.dumps(key))
        assert (copy.algorithm, copy.raw()) == (algorithm, publics[0])
        assert copy == key and {copy} == {key}
    assert bytes(range(32)).hex() not in repr(KEY) and "31" not in repr(KEY)


def test_public_keys_are_equal_by_their_bytes():
    _, publics = lockstep.generate_many("P-256", 2)
    one, other = [lockstep.PublicKey.from_raw("P-256", raw) for raw in publics]
    again = lockstep.PublicKey.from_der(one.to_der())
    assert one == again and hash(one) == hash(again) and len({one, other, again}) == 2
    assert one != other and one != publics[0]
    twins = [lockstep.PublicKey.from_raw(name, bytes(32)) for name in ["Ed25519", "X25519"]]
    assert twins[0] != twins[1]
    secret = lockstep.PrivateKey.from_raw("Ed25519", bytes(range(32)))
    assert secret != KEY and secret.public() == KEY.public()


def test_progress_ends_at_the_number_of_items():
    told = []
    rows = 30_000
    check(TEXTS[:1] * rows, LIST[:1] * rows, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (rows, rows) and told == sorted(told)


def test_an_error_of_progress_stops_the_call():
    def fail(done, total):
        raise RuntimeError("no more")

    rows = 2_000_000
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="no more"):
        check(np.zeros((rows, 8), np.uint8), np.zeros((rows, 64), np.uint8), progress=fail)
    assert time.monotonic() - start < 5


def test_an_interrupt_stops_a_call():
    code = """
import os, signal, threading, time
import numpy as np, lockstep_crypto as lockstep
rows = 20_000_000
texts = np.broadcast_to(np.zeros((1, 64), np.uint8), (rows, 64))
key = lockstep.PrivateKey.from_raw("Ed25519", bytes(32)).public()
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    lockstep.verify_many("Ed25519", key, texts, texts)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - start < 5)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "interrupted True\n"


def test_threads_call_at_once():
    results = []

    def work():
        results.append(check(TEXTS, LIST).all())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 8


def test_threads_with_small_stacks_call():
    previous = threading.stack_size(64 << 10)
    try:
        results = []

        def work():
            # The first use of a curve makes its table, with much memory on the stack.
            for algorithm, size in [("P-384", 48), ("P-256", 32), ("Ed25519", 32)]:
                lockstep.PrivateKey.from_raw(algorithm, bytes([1] * size)).public().prepare()
            results.append(check(TEXTS, LIST).all())

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(previous)
    assert results == [True]


def test_a_forked_child_computes():
    child = os.fork()
    if child == 0:
        signed = lockstep.sign_many("Ed25519", KEY, TEXTS)
        os._exit(0 if signed.to_list() == LIST else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_a_pool_compute(method):
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(2, get_context(method)) as pool:
        calls = [pool.submit(lockstep.verify_many, "Ed25519", KEY.public(), TEXTS, LIST) for _ in "ab"]
        assert all(call.result().all() for call in calls)
