from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from ._native import PrivateKey as PrivateKey
from ._native import PublicKey as PublicKey
from ._native import Workers as Workers

__version__: str
SCHEMES: tuple[str, ...]
REASONS: tuple[str, ...]

class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = ...) -> tuple[object, object]: ...
    def __len__(self) -> int: ...

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = ...) -> object: ...
    def __len__(self) -> int: ...

_Bytes = Sequence[bytes] | NDArray[np.uint8] | _ArrowArray | _ArrowStream
_Index = Sequence[int] | NDArray[np.integer[Any]]
_Progress = bool | Callable[[int, int], object] | None

class _Coded:
    codes: NDArray[np.uint8]
    def __len__(self) -> int: ...
    @property
    def valid(self) -> NDArray[np.bool_]: ...
    def all(self) -> bool: ...
    def reason(self, number: int) -> str | None: ...
    def failures(self) -> list[tuple[int, str]]: ...

class Verdicts(_Coded):
    def __array__(self, dtype: Any = ..., copy: bool | None = ...) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, number: int) -> bool: ...
    @overload
    def __getitem__(self, number: slice) -> NDArray[np.bool_]: ...
    def __iter__(self) -> Iterator[bool]: ...

class Column(_Coded):
    @property
    def array(self) -> NDArray[np.uint8]: ...
    @property
    def lengths(self) -> NDArray[np.uint32]: ...
    @overload
    def __getitem__(self, number: int) -> bytes: ...
    @overload
    def __getitem__(self, number: slice) -> list[bytes]: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def to_list(self) -> list[bytes | None]: ...
    def to_arrow(self) -> Any: ...

def verify_many(
    scheme: str,
    keys: PublicKey | Sequence[PublicKey] | _Bytes,
    messages: _Bytes,
    signatures: _Bytes,
    *,
    index: _Index | None = None,
    encoding: str | None = None,
    prehashed: bool = False,
    workers: Workers | None = None,
    progress: _Progress = None,
) -> Verdicts: ...
def sign_many(
    scheme: str,
    keys: PrivateKey | Sequence[PrivateKey],
    messages: _Bytes,
    *,
    index: _Index | None = None,
    encoding: str | None = None,
    prehashed: bool = False,
    workers: Workers | None = None,
    progress: _Progress = None,
) -> Column: ...
def agree_many(
    algorithm: str,
    keys: PrivateKey | Sequence[PrivateKey],
    peers: _Bytes,
    *,
    index: _Index | None = None,
    workers: Workers | None = None,
    progress: _Progress = None,
) -> Column: ...
def generate_many(
    algorithm: str,
    count: int,
    *,
    workers: Workers | None = None,
    progress: _Progress = None,
) -> tuple[Column, Column]: ...
def encapsulate_many(
    algorithm: str,
    peers: _Bytes,
    *,
    workers: Workers | None = None,
    progress: _Progress = None,
) -> tuple[Column, Column]: ...
def decapsulate_many(
    algorithm: str,
    keys: PrivateKey | Sequence[PrivateKey],
    ciphertexts: _Bytes,
    *,
    index: _Index | None = None,
    workers: Workers | None = None,
    progress: _Progress = None,
) -> Column: ...
def key_set(text: str | bytes) -> dict[str, PublicKey]: ...
