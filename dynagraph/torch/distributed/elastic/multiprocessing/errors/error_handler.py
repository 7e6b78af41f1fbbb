"""Files in which a process says by what exception it ends, for the launcher."""

from __future__ import annotations

import faulthandler
import json
import os
import time
import traceback
from typing import Any

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # the environment variable that names the file


def error_data(error: BaseException) -> dict[str, Any]:
    """What the file says of an exception, as PyTorch's files do."""
    return {
        "message": {
            "message": f"{type(error).__name__}: {error}",
            "extraInfo": {"py_callstack": "".join(traceback.format_exception(error)), "timestamp": str(int(time.time()))},
        }
    }


class ErrorHandler:
    """Writes the file."""

    def _get_error_file_path(self) -> str | None:
        return os.environ.get(ERROR_FILE)

    def initialize(self) -> None:
        """Have the interpreter print its stacks where a signal such as SIGSEGV ends the process."""
        faulthandler.enable(all_threads=True)

    def record_exception(self, e: BaseException) -> None:
        """Write the exception's message and traceback, where the environment names a file."""
        path = self._get_error_file_path()
        if path:
            with open(path, "w") as file:
                json.dump(error_data(e), file)

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        """Take over the file of a process of this one's, which failed."""
        with open(rootcause_error_file) as file:
            data = json.load(file)
        if error_code and isinstance(data.get("message"), dict):
            data["message"]["errorCode"] = error_code
        path = self._get_error_file_path()
        if path:
            with open(path, "w") as file:
                json.dump(data, file)


__all__ = ["ErrorHandler", "error_data"]
