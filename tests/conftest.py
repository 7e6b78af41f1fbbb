"""Shared by all tests: kernels go to a cache of this run's own, never to the user's, and nothing measures devices unasked."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

# before dynagraph is imported, which reads it; subprocesses of tests inherit it
_folder = tempfile.mkdtemp(prefix="dynagraph-tests-")
os.environ["DYNAGRAPH_CACHE_DIR"] = _folder
os.environ["DYNAGRAPH_MEASURE_DEVICES"] = "0"
atexit.register(shutil.rmtree, _folder, ignore_errors=True)
