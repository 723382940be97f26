"""Spark, local."""

import os
import shutil
import sys

import pytest

import lockstep_crypto as lockstep

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java")


@pytest.fixture(scope="module")
def session():
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()


def test_rows_are_signed_and_checked(session):
    from lockstep_crypto import spark

    def load():
        return lockstep.PrivateKey.from_raw("P-256", bytes([7]) * 32)

    rows = [(number, bytearray(b"text %d" % number)) for number in range(3000)]
    frame = session.createDataFrame(rows, "row int, message binary").repartition(4)
    signed = frame.mapInArrow(
        spark.sign("ES256", load), "row int, message binary, signature binary"
    )
    checked = signed.mapInArrow(
        spark.verify("ES256", load().public()),
        "row int, message binary, signature binary, valid boolean",
    )
    found = checked.select("row", "valid").collect()
    assert sorted(row.row for row in found) == list(range(3000))
    assert all(row.valid for row in found)
    other = lockstep.PrivateKey.from_raw("P-256", bytes([8]) * 32).public()
    wrong = signed.mapInArrow(
        spark.verify("ES256", other), "row int, message binary, signature binary, valid boolean"
    )
    assert wrong.filter("valid").count() == 0
