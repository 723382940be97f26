"""Operations for Spark: functions for ``DataFrame.mapInArrow``.

Spark moves the batches and computes a partition anew whose worker dies. Each task computes on one
thread, since Spark runs a task for each CPU.
"""

from __future__ import annotations

import pyarrow

from .ray import Sign, Verify

__all__ = ["sign", "verify"]


def verify(scheme, keys=None, **columns):
    """Return a function that checks the signatures of batches and appends a column of booleans.

    The arguments are those of :class:`lockstep_crypto.ray.Verify`.
    """
    # Here, so that a mistake is told before Spark starts.
    Verify(scheme, keys, **columns)
    return _batches(lambda: Verify(scheme, keys, threads=1, **columns))


def sign(scheme, load, **columns):
    """Return a function that signs the messages of batches and appends a column of signatures.

    The arguments are those of :class:`lockstep_crypto.ray.Sign`. Each task calls ``load``.
    """
    return _batches(lambda: Sign(scheme, load, threads=1, **columns))


def _batches(make):
    def batches(batches):
        compute = make()
        for batch in batches:
            yield from _for_spark(compute(pyarrow.Table.from_batches([batch]))).to_batches()

    return batches


def _for_spark(table):
    """Cast columns of values of one length, which Spark does not know, to binary ones."""
    fixed = pyarrow.types.is_fixed_size_binary
    types = [pyarrow.binary() if fixed(type) else type for type in table.schema.types]
    return table.cast(pyarrow.schema(list(zip(table.schema.names, types))))
