"""Checkpoints out of the network, from a server of this process."""

from __future__ import annotations

import functools
import hashlib
import http.server
import pathlib
import threading
import urllib.error
import zipfile
from collections.abc import Iterator

import pytest

import dynagraph.torch as torch
from dynagraph.torch import hub
from dynagraph.torch.utils import model_zoo


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[str]:
    (tmp_path / "served").mkdir()
    handler = functools.partial(Quiet, directory=str(tmp_path / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()
        thread.join()


def test_state_dicts_by_address(server: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    torch.save({"a": torch.ones(2)}, tmp_path / "served" / "x.pth")
    data = (tmp_path / "served" / "x.pth").read_bytes()
    named = f"x-{hashlib.sha256(data).hexdigest()[:8]}.pth"
    for name in (named, "x-00000000.pth"):
        (tmp_path / "served" / name).write_bytes(data)
    load = functools.partial(hub.load_state_dict_from_url, progress=False)
    assert load(f"{server}/x.pth")["a"].tolist() == [1, 1]
    assert (tmp_path / "home/hub/checkpoints/x.pth").exists()
    (tmp_path / "served" / "x.pth").unlink()
    assert model_zoo.load_url(f"{server}/x.pth", map_location="cpu", weights_only=True)["a"].tolist() == [1, 1]  # is there
    assert load(f"{server}/{named}?x=1", tmp_path / "other", check_hash=True)["a"].tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="invalid hash value"):
        load(f"{server}/x-00000000.pth", check_hash=True)
    with pytest.raises(urllib.error.HTTPError):
        load(f"{server}/not there.pth".replace(" ", "%20"))
    assert sorted(p.name for p in (tmp_path / "home/hub/checkpoints").iterdir()) == ["x.pth"]
    with zipfile.ZipFile(tmp_path / "served" / "old.zip", "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("old.pth", data)
    assert load(f"{server}/old.zip", file_name="renamed.zip")["a"].tolist() == [1, 1]
    with zipfile.ZipFile(tmp_path / "served" / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("bomb.pth", bytes(10**6))
    with pytest.raises(RuntimeError, match="expands to"):
        load(f"{server}/bomb.zip")
