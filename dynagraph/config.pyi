from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

LOG_TOPICS: tuple[str, ...]

@dataclass(frozen=True)
class Switch:
    name: str
    default: Any
    parse: Callable[[Any], Any]
    expected: str
    doc: str

    @property
    def variable(self) -> str: ...

SWITCHES: tuple[Switch, ...]
BY_NAME: Mapping[str, Switch]

threads: int | None
products: str
strict: bool
log: frozenset[str]
cache: bool
cache_dir: str | None
cache_programs: bool
cache_limit: int
cc: str | None
compiler_timeout: float | None
nvrtc: str | None
cublaslt: str | None
cuda_check: bool
cuda_errors: str
measure_devices: bool
entry_limit: int
break_limit: int
stay_eager: bool
compile_budget: float | None
tiers: str
compiler_processes: int
tape_limit: int
unroll_limit: int
inline_depth: int
pool_limit: int | None

def override(**switches: Any) -> AbstractContextManager[None]: ...
def describe() -> list[tuple[str, Any, str, str]]: ...
def on_change(listener: Callable[[str], None]) -> None: ...
