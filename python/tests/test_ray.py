"""Ray: a local cluster of several processes, of which one is killed in the middle."""

import os
import pathlib
import signal
import time

import numpy as np
import pyarrow as pa
import pytest

import lockstep_crypto as lockstep

ray = pytest.importorskip("ray")

COUNT = 40_000
WRONG = {7, 19_999, 39_998}


@pytest.fixture(scope="module")
def cluster():
    # Two for the workers of a test, and two for its other tasks.
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def table():
    secrets, publics = lockstep.generate_many("Ed25519", 10)
    keys = [lockstep.PrivateKey.from_raw("Ed25519", secret) for secret in secrets]
    index = np.arange(COUNT) % 10
    texts = [b"row %d" % number for number in range(COUNT)]
    signatures = lockstep.sign_many("Ed25519", keys, texts, index=index).array.copy()
    for row in WRONG:
        signatures[row, 0] ^= 1
    columns = {
        "row": np.arange(COUNT),
        "key": pa.array([publics[place] for place in index], type=pa.binary(32)),
        "index": index,
        "message": pa.array(texts, type=pa.binary()),
        "signature": pa.array([bytes(row) for row in signatures], type=pa.binary(64)),
    }
    return pa.table(columns), [key.public() for key in keys]


def answers(rows):
    """Check that each row has one answer, and the right one."""
    assert sorted(row["row"] for row in rows) == list(range(COUNT))
    assert {row["row"] for row in rows if not row["valid"]} == WRONG


def test_each_row_has_one_answer(cluster):
    from lockstep_crypto.ray import Verify

    data, public = table()
    rows = ray.data.from_arrow(data).repartition(16)
    options = {"batch_format": "pyarrow", "batch_size": 1000, "concurrency": 2}
    raw = rows.map_batches(Verify, fn_constructor_args=("Ed25519",), **options)
    answers(raw.select_columns(["row", "valid"]).take_all())
    arguments = {"scheme": "Ed25519", "keys": public, "index": "index"}
    few = rows.map_batches(Verify, fn_constructor_kwargs=arguments, **options)
    answers(few.select_columns(["row", "valid"]).take_all())


def test_rows_of_a_worker_that_dies_are_answered_once(cluster, tmp_path):
    from lockstep_crypto.ray import Verify

    marks = str(tmp_path)

    class Dying(Verify):
        """One worker is killed in its third batch."""

        def __call__(self, batch):
            self.calls = getattr(self, "calls", 0) + 1
            place = os.path.join(marks, "killed")
            if self.calls == 3:
                try:
                    os.close(os.open(place, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    pass
                else:
                    os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.02)
            return super().__call__(batch)

    data, _ = table()
    checked = (
        ray.data.from_arrow(data)
        .repartition(40)
        .map_batches(
            Dying,
            fn_constructor_args=("Ed25519",),
            batch_format="pyarrow",
            batch_size=1000,
            concurrency=2,
            max_restarts=4,
            max_task_retries=4,
        )
    )
    answers(checked.select_columns(["row", "valid"]).take_all())
    assert os.path.exists(os.path.join(marks, "killed")), "no worker was killed"


def test_signatures_of_a_cluster_are_good(cluster):
    from lockstep_crypto.ray import Sign

    def load():
        return lockstep.PrivateKey.from_raw("P-256", bytes([7]) * 32)

    rows = ray.data.from_items([{"message": b"text %d" % number} for number in range(2000)])
    signed = rows.map_batches(
        Sign, fn_constructor_args=("ES256", load), batch_format="pyarrow", concurrency=2
    ).take_all()
    verdicts = lockstep.verify_many(
        "ES256",
        load().public(),
        [row["message"] for row in signed],
        [row["signature"] for row in signed],
    )
    assert len(signed) == 2000 and verdicts.all()


def test_the_table_of_the_benchmark_is_answered(cluster, tmp_path, monkeypatch):
    """`python/benchmarks/scaling.py`, with fewer rows."""
    benchmarks = pathlib.Path(__file__).parents[1] / "benchmarks"
    monkeypatch.syspath_prepend(str(benchmarks))
    import scaling

    rows = 50_000
    paths = scaling.make(tmp_path, rows, file_rows=16_000, keys=20)
    assert len(paths) == 4
    answers = scaling.answers_of(tmp_path, 2, batch=5000)
    scaling.check_answers(*answers, rows)
    assert scaling.check_sample(paths, *answers) >= scaling.SAMPLE
    alone = scaling.answers_alone(tmp_path)
    scaling.check_answers(*alone, rows)
    numbers, valid = alone
    with pytest.raises(SystemExit, match="answers for"):
        scaling.check_answers(numbers[1:], valid[1:], rows)
    with pytest.raises(SystemExit, match="answers for"):
        scaling.check_answers(np.append(numbers[1:], 7), valid, rows)
    valid = valid.copy()
    valid[17] ^= True
    with pytest.raises(SystemExit, match="wrong answers"):
        scaling.check_answers(numbers, valid, rows)
