from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

LOG_TOPICS: tuple[str, ...]

threads: int | None
strict: bool
log: frozenset[str]
cache: bool
cache_dir: str | None
cache_limit: int
cc: str | None
entry_limit: int
unroll_limit: int
inline_depth: int
pool_limit: int | None

def override(**switches: Any) -> AbstractContextManager[None]: ...
def describe() -> list[tuple[str, Any, str, str]]: ...
def on_change(listener: Callable[[str], None]) -> None: ...
