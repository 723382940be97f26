from collections.abc import Callable, Sequence
from typing import Any, final

__version__: str
schemes: list[str]

@final
class Workers:
    """Threads, lanes and devices. Without arguments: a thread for each CPU that the process may use.

    ``devices=["opencl:0"]`` adds a device of OpenCL, such as a GPU. ValueError says why it cannot be
    used. A device gets work in calls with ``device_threshold`` items or more, if that is given, or
    else from the number of items on from which it pays, which the first call measures.
    """

    def __new__(
        cls,
        threads: int | None = None,
        lanes: str | None = None,
        devices: Sequence[str] | None = None,
        device_threshold: int | None = None,
    ) -> Workers: ...
    @property
    def threads(self) -> int: ...
    @property
    def lanes(self) -> str: ...
    @property
    def devices(self) -> list[tuple[str, int, str | None]]:
        """Name, number of computed items and last failure of each device."""

@final
class PublicKey:
    """A public key. The functions ``from_...`` raise ValueError for what they cannot read.

    Keys are equal if they have the same algorithm and the same bytes.
    """

    @staticmethod
    def from_pem(text: str | bytes) -> PublicKey: ...
    @staticmethod
    def from_der(data: bytes) -> PublicKey: ...
    @staticmethod
    def from_jwk(text: str | bytes) -> PublicKey: ...
    @staticmethod
    def from_jwk_set(text: str | bytes) -> list[tuple[str | None, PublicKey | None, str | None]]: ...
    @staticmethod
    def from_raw(algorithm: str, data: bytes) -> PublicKey: ...
    @property
    def algorithm(self) -> str: ...
    def raw(self) -> bytes: ...
    def to_der(self) -> bytes: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...
    def prepare(self) -> None:
        """Make the table with which signatures are checked in less time.

        A key of which many signatures are checked gets its table by itself.
        """

@final
class PrivateKey:
    """A private key, wiped when it is dropped."""

    @staticmethod
    def from_pem(text: str | bytes) -> PrivateKey: ...
    @staticmethod
    def from_der(data: bytes) -> PrivateKey: ...
    @staticmethod
    def from_jwk(text: str | bytes) -> PrivateKey: ...
    @staticmethod
    def from_raw(algorithm: str, data: bytes) -> PrivateKey: ...
    @property
    def algorithm(self) -> str: ...
    def public(self) -> PublicKey: ...

@final
class Output:
    def __len__(self) -> int: ...
    def get(self, number: int) -> bytes: ...
    def codes(self) -> bytes: ...
    def lengths(self) -> bytes: ...
    def __buffer__(self, flags: int) -> memoryview: ...

_Told = Callable[[int], None] | None

def verify(
    name: str,
    keys: Any,
    index: Any,
    messages: Any,
    signatures: Any,
    encoding: str | None,
    prehashed: bool,
    workers: Workers,
    progress: _Told,
) -> bytes: ...
def sign(
    name: str,
    keys: Any,
    index: Any,
    messages: Any,
    encoding: str | None,
    prehashed: bool,
    workers: Workers,
    progress: _Told,
) -> Output: ...
def agree(
    name: str, keys: Any, index: Any, peers: Any, workers: Workers, progress: _Told
) -> Output: ...
def generate(
    name: str, count: int, workers: Workers, progress: _Told
) -> tuple[Output, Output]: ...
def encapsulate(
    name: str, peers: Any, workers: Workers, progress: _Told
) -> tuple[Output, Output]: ...
def decapsulate(
    name: str, keys: Any, index: Any, ciphertexts: Any, workers: Workers, progress: _Told
) -> Output: ...
def reasons() -> Sequence[tuple[int, str, str]]: ...
