"""Downloads from a local server: checked, resumed, and unpacked safely."""

from __future__ import annotations

import hashlib
import http.server
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dynagraph.torch.datasets import downloads
from dynagraph.torch.datasets.downloads import download, extract

DATA = bytes(range(256)) * 4096  # 1 MiB
CHECKSUM = f"sha256:{hashlib.sha256(DATA).hexdigest()}"


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves DATA; `server.cut` ends the first answers early, `server.ranges` says whether it understands ranges."""

    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append((asked, self.headers.get("If-Range")))
        start = 0
        if asked and self.server.ranges and self.headers.get("If-Range") in (None, self.server.tag):
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(self.server.data):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(self.server.data) - 1}/{len(self.server.data)}")
        else:
            self.send_response(200)
        self.send_header("ETag", self.server.tag)
        self.send_header("Content-Length", str(len(self.server.data) - start))
        self.end_headers()
        body = self.server.data[start:]
        if self.server.cut:
            body = body[: self.server.cut.pop()]
            self.close_connection = True
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Any]:
    made: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads = True
    made.data, made.tag, made.cut, made.ranges, made.asked = DATA, '"first"', [], True, []
    made.url = f"http://127.0.0.1:{made.server_port}/files/numbers.bin"
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_file_is_downloaded_once(server: Any, tmp_path: Path) -> None:
    path = download(server.url, tmp_path, checksum=CHECKSUM)
    assert path == tmp_path / "numbers.bin" and path.read_bytes() == DATA
    assert download(server.url, tmp_path, checksum=CHECKSUM) == path
    assert len(server.asked) == 1
    path.write_bytes(b"damaged")
    assert download(server.url, tmp_path, checksum=f"md5:{hashlib.md5(DATA).hexdigest()}").read_bytes() == DATA
    assert sorted(p.name for p in tmp_path.iterdir()) == ["numbers.bin", "numbers.bin.lock"]


def test_connections_that_break_are_gone_on_with(server: Any, tmp_path: Path) -> None:
    server.cut = [300_000, 500_000]
    assert download(server.url, tmp_path).read_bytes() == DATA
    assert [asked for asked, _ in server.asked] == [None, "bytes=500000-", "bytes=800000-"]
    assert {version for _, version in server.asked[1:]} == {'"first"'}


@pytest.mark.parametrize("changed", [False, True])
def test_a_later_call_asks_for_the_rest(server: Any, tmp_path: Path, changed: bool) -> None:
    server.cut = [10_000] * downloads.TRIES
    with pytest.raises(OSError, match="ended early"):
        download(server.url, tmp_path)
    assert not (tmp_path / "numbers.bin").exists()
    if changed:  # what was downloaded before is of another file
        server.data, server.tag = DATA[::-1], '"second"'
    assert download(server.url, tmp_path).read_bytes() == server.data
    assert server.asked[-1] == ("bytes=40000-", '"first"')


def test_servers_without_ranges_are_asked_for_all_of_it(server: Any, tmp_path: Path) -> None:
    server.ranges, server.cut = False, [10_000]
    assert download(server.url, tmp_path, checksum=CHECKSUM).read_bytes() == DATA


def test_what_was_whole_already(server: Any, tmp_path: Path) -> None:
    (tmp_path / "numbers.bin.part").write_bytes(DATA)
    assert download(server.url, tmp_path, checksum=CHECKSUM).read_bytes() == DATA
    (tmp_path / "numbers.bin").unlink()
    (tmp_path / "numbers.bin.part").write_bytes(DATA + b"more")  # of something else
    assert download(server.url, tmp_path, checksum=CHECKSUM).read_bytes() == DATA


def test_another_checksum(server: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"has the checksum {CHECKSUM}, but sha256:0 was expected"):
        download(server.url, tmp_path, checksum="sha256:0")
    assert not [p for p in tmp_path.iterdir() if not p.name.endswith(".lock")]


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://localhost/a", "numbers.bin"])
def test_other_urls(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected an URL of http or https"):
        download(url, tmp_path)
    with pytest.raises(ValueError, match="expected a file's name"):
        download("http://127.0.0.1/a", tmp_path, filename="../b")


def tar_with(path: Path, **about: Any) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo(about.pop("name"))
        for name, value in about.items():
            setattr(member, name, value)
        tar.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def test_archives(tmp_path: Path) -> None:
    assert (extract(tar_with(tmp_path / "a.tgz", name="in/side.txt", size=3), tmp_path / "a") / "in/side.txt").read_text() == "xxx"
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as packed:
        packed.writestr("in/side.txt", "yes")
    assert (extract(tmp_path / "b.zip", tmp_path / "b") / "in/side.txt").read_text() == "yes"
    hostile = [
        tar_with(tmp_path / "c.tgz", name="../out.txt", size=3), tar_with(tmp_path / "d.tgz", name="/tmp/out.txt", size=3),
        tar_with(tmp_path / "e.tgz", name="link", type=tarfile.SYMTYPE, linkname="/etc"),
    ]  # fmt: skip
    with zipfile.ZipFile(tmp_path / "f.zip", "w") as packed:
        packed.writestr("../out.txt", "no")
    for archive in (*hostile, tmp_path / "f.zip"):
        with pytest.raises(ValueError, match=r"extract: .* holds"):
            extract(archive, tmp_path / "target")
        assert not list((tmp_path / "target").iterdir()) and not (tmp_path / "out.txt").exists()
    (tmp_path / "g.zip").write_text("no archive")
    with pytest.raises(ValueError, match="neither a tar nor a zip"):
        extract(tmp_path / "g.zip", tmp_path / "target")
