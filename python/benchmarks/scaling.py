"""Verifies a Parquet table of Ed25519 signatures on Ray, with a growing number of workers.

    python scaling.py [--rows 10000000] [--workers 1,2,4] [--json FILE] [DIRECTORY]

The table is made first, in several files, if the directory does not have it: rows with a number, a
message, a key and a signature by it. Some signatures are wrong. `wrong` says which rows. Each run
must give each row one answer, and the right one; the package cryptography gives its own verdicts on
a sample. The JSON document is the record from which `cargo xtask figures` renders
docs/benchmarks/scaling.md.
"""

import argparse
import datetime
import json
import os
import pathlib
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

import lockstep_crypto as lockstep
from lockstep_crypto.ray import Verify

MESSAGE_BYTES = 64
KEYS = 1000
FILE_ROWS = 250_000
# Rows of a call.
BATCH = 50_000
SAMPLE = 200


def wrong(rows):
    """Whether the signatures of these rows are damaged, by the rows' numbers."""
    return rows % 99_991 == 17


def fixed(matrix):
    """An Arrow column over the rows of a matrix."""
    rows, width = matrix.shape
    data = pa.py_buffer(np.ascontiguousarray(matrix))
    return pa.Array.from_buffers(pa.binary(width), rows, [None, data])


def make(directory, rows, file_rows=FILE_ROWS, keys=KEYS):
    """Write the table; return the paths of its files."""
    secrets, publics = lockstep.generate_many("Ed25519", keys)
    signers = [lockstep.PrivateKey.from_raw("Ed25519", secret) for secret in secrets]
    random = np.random.default_rng(7)
    paths = []
    for start in range(0, rows, file_rows):
        numbers = np.arange(start, min(start + file_rows, rows))
        index = random.integers(keys, size=len(numbers))
        messages = random.integers(256, size=(len(numbers), MESSAGE_BYTES), dtype=np.uint8)
        signed = lockstep.sign_many("Ed25519", signers, messages, index=index)
        if not signed.all():
            raise SystemExit("a signature is missing: please report this")
        signatures = signed.array.copy()
        signatures[wrong(numbers), 0] ^= 1
        columns = {
            "row": pa.array(numbers),
            "key": fixed(publics.array[index]),
            "message": fixed(messages),
            "signature": fixed(signatures),
        }
        paths.append(pathlib.Path(directory, f"{start:012}.parquet"))
        # Random bytes do not get shorter.
        pq.write_table(pa.table(columns), paths[-1], compression="none", use_dictionary=["key"])
    return paths


def answers_of(directory, workers, batch=BATCH):
    """Verify the table by Ray; return the number of each row that was answered, and its answer."""

    class Answers(Verify):
        """Only the answers leave a worker."""

        def __call__(self, table):
            return super().__call__(table).select(["row", "valid"])

    answered = ray.data.read_parquet(str(directory)).map_batches(
        Answers,
        fn_constructor_args=("Ed25519",),
        batch_format="pyarrow",
        batch_size=batch,
        concurrency=workers,
        num_cpus=1,
    )
    tables = list(answered.iter_batches(batch_size=None, batch_format="pyarrow"))
    table = pa.concat_tables(tables)
    return table["row"].to_numpy(), table["valid"].to_numpy()


def answers_alone(directory):
    """Verify the table on one thread, without Ray."""
    workers, rows, valid = lockstep.Workers(1), [], []
    for path in sorted(pathlib.Path(directory).glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(BATCH):
            columns = batch["key"], batch["message"], batch["signature"]
            rows.append(batch["row"].to_numpy())
            valid.append(lockstep.verify_many("Ed25519", *columns, workers=workers).valid)
    return np.concatenate(rows), np.concatenate(valid)


def check_answers(rows, valid, count):
    """Insist that each row has one answer, and the right one."""
    if len(rows) != count or (np.bincount(rows, minlength=count) != 1).any():
        raise SystemExit(f"{len(rows)} answers for {count} rows: please report this")
    if (valid == wrong(rows)).any():
        raise SystemExit("wrong answers: please report this")


def check_sample(paths, rows, valid, count=SAMPLE):
    """Compare a sample of answers with those of the package cryptography; return their number.

    Rows with a wrong signature are in it.
    """
    by_row = np.empty(len(rows), dtype=bool)
    by_row[rows] = valid
    random, checked = np.random.default_rng(8), 0
    for path in random.choice(paths, size=min(4, len(paths)), replace=False):
        table = pq.read_table(path)
        numbers = table["row"].to_numpy()
        places = random.choice(len(numbers), size=min(count // 4, len(numbers)), replace=False)
        places = np.union1d(places, np.flatnonzero(wrong(numbers))[:5])
        for row in table.take(places).to_pylist():
            key = Ed25519PublicKey.from_public_bytes(row["key"])
            try:
                key.verify(row["signature"], row["message"])
                good = True
            except InvalidSignature:
                good = False
            if good != by_row[row["row"]]:
                raise SystemExit(f"another verdict on row {row['row']}: please report this")
            checked += 1
    return checked


def start(cpus):
    """Start a local cluster with this number of CPUs for workers, and one for reading."""
    ray.init(num_cpus=cpus + 1, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False


def timed(function, *arguments):
    begin = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - begin


def machine():
    fields = {}
    with open("/proc/cpuinfo") as file:
        for line in file:
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    name, family, model = (fields.get(key, "?") for key in ["model name", "cpu family", "model"])
    return {
        "cpu": f"{name}, family {family} model {model}",
        "cpus": len(os.sched_getaffinity(0)),
        "lanes": lockstep.Workers().lanes,
        "python": sys.version.split()[0],
        "ray": ray.__version__,
        "lockstep": lockstep.__version__,
    }


def run(directory, rows, workers):
    """Make the table where it is missing, and measure; return the document."""
    paths = sorted(pathlib.Path(directory).glob("*.parquet"))
    if not paths:
        paths, seconds = timed(make, directory, rows)
        print(f"made {rows} rows in {len(paths)} files: {seconds:.1f} s", file=sys.stderr)
    elif sum(pq.read_metadata(path).num_rows for path in paths) != rows:
        raise SystemExit(f"{directory} has a table with another number of rows")
    measured = []

    def note(count, answers, seconds):
        check_answers(*answers, rows)
        rate = round(rows / seconds)
        print(f"{count} workers: {seconds:.1f} s, {rate} rows a second", file=sys.stderr)
        measured.append({"workers": count, "seconds": round(seconds, 2), "rows_per_s": rate})

    answers, seconds = timed(answers_alone, directory)
    note(0, answers, seconds)
    for count in workers:
        start(count)
        try:
            answers, seconds = timed(answers_of, directory, count)
        finally:
            ray.shutdown()
        note(count, answers, seconds)
    checked = check_sample(paths, *answers)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "rows": rows, "files": len(paths), "keys": KEYS, "batch": BATCH,
        "message_bytes": MESSAGE_BYTES, "checked_by_cryptography": checked,
        "command": " ".join(["python scaling.py", *sys.argv[1:]]),
        "measured": measured,
    }  # fmt: skip


def main():
    numbers = lambda text: [int(number) for number in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", nargs="?", help="a temporary one by default")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--workers", type=numbers, default=[1, 2])
    parser.add_argument("--json", help="file for the record")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        directory = options.directory or place
        os.makedirs(directory, exist_ok=True)
        document = json.dumps(run(directory, options.rows, options.workers), indent=2)
    print(document)
    if options.json:
        pathlib.Path(options.json).write_text(document + "\n")


if __name__ == "__main__":
    main()
