"""Operations for Ray: classes for ``Dataset.map_batches(..., batch_format="pyarrow")``.

Ray moves the batches, starts the workers again that die, and computes their batches anew. Each
worker computes on as many threads as Ray gives it CPUs (``num_cpus``, 1 by default).
"""

from __future__ import annotations

import os

import pyarrow

from . import Workers, sign_many, verify_many

__all__ = ["Sign", "Verify"]


def _threads():
    """Return the number of CPUs that Ray gives this worker."""
    try:
        import ray

        return max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)))
    except Exception:  # Not in a worker of Ray.
        return int(os.environ.get("OMP_NUM_THREADS", "0")) or 1


class Verify:
    """Check the signatures of a table; append a column of booleans.

    ``keys`` is a public key for all rows, or a list of them to which the column ``index`` refers.
    Without ``keys``, the column ``key`` has the bytes of a key in each row.
    """

    def __init__(
        self,
        scheme,
        keys=None,
        *,
        key="key",
        index=None,
        message="message",
        signature="signature",
        output="valid",
        encoding=None,
        prehashed=False,
        threads=None,
    ):
        if keys is not None and not hasattr(keys, "algorithm") and index is None:
            raise ValueError("a list of keys needs the name of the column index")
        self._columns = (key, index, message, signature, output)
        self._scheme, self._keys = scheme, keys
        self._options = {"encoding": encoding, "prehashed": prehashed}
        self._threads, self._workers = threads, None

    def __call__(self, table: pyarrow.Table) -> pyarrow.Table:
        if self._workers is None:
            self._workers = Workers(self._threads or _threads())
        key, index, message, signature, output = self._columns
        keys = table.column(key) if self._keys is None else self._keys
        places = None if index is None else table.column(index).to_numpy()
        verdicts = verify_many(
            self._scheme,
            keys,
            table.column(message),
            table.column(signature),
            index=places,
            workers=self._workers,
            **self._options,
        )
        return table.append_column(output, pyarrow.array(verdicts.valid))


class Sign:
    """Sign the messages of a table; append a column of signatures, null where there is none.

    ``load`` is a function without arguments that returns the private key. Each worker calls it
    once, so that the key is in no message and in no log of Ray.
    """

    def __init__(
        self,
        scheme,
        load,
        *,
        message="message",
        output="signature",
        encoding=None,
        prehashed=False,
        threads=None,
    ):
        self._scheme, self._key = scheme, load()
        self._message, self._output = message, output
        self._options = {"encoding": encoding, "prehashed": prehashed}
        self._workers = Workers(threads or _threads())

    def __call__(self, table: pyarrow.Table) -> pyarrow.Table:
        messages = table.column(self._message)
        signed = sign_many(
            self._scheme, self._key, messages, workers=self._workers, **self._options
        )
        return table.append_column(self._output, signed.to_arrow())
