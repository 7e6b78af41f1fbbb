"""Datasets: files in known formats, what scikit-learn brings along, and what is wrong with files."""

from __future__ import annotations

import doctest
import gzip
import importlib
import os
import pickle
import pkgutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynagraph.torch as torch
from dynagraph.torch import datasets
from dynagraph.torch.datasets.plain_pickles import loads

MODULES = sorted(f"{datasets.__name__}.{m.name}" for m in pkgutil.iter_modules(datasets.__path__))


def test_examples_run() -> None:
    for module in (datasets.__name__, *MODULES):
        assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_what_scikit_learn_has() -> None:
    pytest.importorskip("sklearn")
    images, classes = datasets.digits().tensors
    assert images.shape == (1797, 1, 8, 8) and images.max() == 1 and classes.bincount().tolist()[:2] == [178, 182]
    flowers, kinds = datasets.iris().tensors
    assert flowers.dtype == torch.float32 and kinds.bincount().tolist() == [50, 50, 50]
    assert datasets.breast_cancer().tensors[0].shape == (569, 30)
    pytest.importorskip("PIL")
    photographs = datasets.sample_images()
    assert {name: tuple(image.shape) for name, image in photographs.items()} == dict.fromkeys(photographs, (3, 427, 640))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"datasets\.iris needs scikit-learn: pip install scikit-learn"):
        datasets.iris()


# -- MNIST ------------------------------------------------------------------------------------------------------------


def idx(array: np.ndarray, kind: int = 8) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, kind, array.ndim]) + sizes + array.astype(array.dtype.newbyteorder(">")).tobytes()


def test_mnist(tmp_path: Path) -> None:
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    images, labels = np.arange(3 * 28 * 28).reshape(3, 28, 28).astype(np.uint8), np.array([7, 0, 9], np.uint8)
    (folder / "train-images-idx3-ubyte").write_bytes(idx(images))
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    digits = datasets.MNIST(tmp_path, target_transform=lambda number: -number)
    assert len(digits) == 3 and (digits.data.numpy() == images).all() and digits.targets.tolist() == [7, 0, 9]
    image = pytest.importorskip("PIL.Image")
    sample, target = digits[1]
    assert isinstance(sample, image.Image) and (np.asarray(sample) == images[1]).all() and target == 0
    with pytest.raises(FileNotFoundError, match="t10k-images-idx3-ubyte is not there; download=True gets it"):
        datasets.MNIST(tmp_path, train=False)


def test_idx_files(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    for kind, dtype in ((0x0B, "i2"), (0x0C, "i4"), (0x0D, "f4"), (0x0E, "f8"), (0x09, "i1")):
        numbers = np.arange(-3, 3).reshape(2, 3).astype(dtype)
        path.write_bytes(idx(numbers, kind))
        found = datasets.read_idx(path).numpy()
        assert found.dtype == dtype and (found == numbers).all()
    good = idx(np.zeros((2, 3), np.uint8))
    huge = bytes([0, 0, 8, 4]) + b"\xff\xff\xff\xff" * 4
    for wrong, text in (
        (b"\x89PNG", "is not an IDX file"), (b"", "is not an IDX file"), (good[:7], "ends within its sizes"),
        (good[:-1], "but has 5 bytes"), (good + b"x", "but has 7 bytes"), (huge, "but has 0 bytes"),
    ):  # fmt: skip
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=text):
            datasets.read_idx(path)


# -- CIFAR ------------------------------------------------------------------------------------------------------------


def cifar(root: Path, **files: Any) -> None:
    for name, value in files.items():
        path = root / "cifar-100-python" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(pickle.dumps(value, protocol=2) if not isinstance(value, bytes) else value)


def test_cifar(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (4, 3072)).astype(np.uint8)
    names = ["apple", "aquarium_fish", "baby"]
    cifar(tmp_path, train={"data": rows, "fine_labels": [2, 0, 1, 2]}, meta={"fine_label_names": names})
    images = datasets.CIFAR100(tmp_path)
    assert images.data.shape == (4, 32, 32, 3) and (images.data[1, :, :, 2].ravel() == rows[1, 2048:]).all()
    assert images.targets == [2, 0, 1, 2] and images.class_to_idx["baby"] == 2
    image = pytest.importorskip("PIL.Image")
    assert isinstance(images[0][0], image.Image) and images[0][1] == 2
    cifar(tmp_path, train={"data": rows[:, :-1], "fine_labels": [0] * 4})
    with pytest.raises(ValueError, match=r"train: expected images as uint8 \(N, 3072\)"):
        datasets.CIFAR100(tmp_path)


class Hostile:
    def __init__(self, function: Any, *arguments: Any):
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize(
    "value", [Hostile(os.system, "true"), Hostile(eval, "1"), [Hostile(getattr, "", "join")], np.array([{}], object), Path("a")]
)
def test_pickles_run_nothing(value: Any, tmp_path: Path) -> None:
    cifar(tmp_path, train={"data": value}, meta={})
    with pytest.raises(ValueError, match=r"train: the pickle (names|has)"):
        datasets.CIFAR100(tmp_path)


def test_pickles_of_plain_data() -> None:
    value = {
        "text": "ä", "numbers": [1, 2.5, None, True], "pair": (1, b"x"), "bytes": np.arange(6, dtype=np.uint8).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "big": np.arange(3, dtype=">i4"),
    }  # fmt: skip
    for protocol in (2, 4):
        found = loads(pickle.dumps(value, protocol=protocol))
        assert list(found) == list(value) and found["numbers"] == value["numbers"] and found["pair"] == value["pair"]
        for name in ("bytes", "fortran", "big"):
            assert found[name].dtype == value[name].dtype and (found[name] == value[name]).all()
    # as Python 2 wrote an array: its bytes are text
    two = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I2\ntcnumpy\ndtype\n(S'u1'\nI0\nI1\ntR"
    two += b"(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\nS'\\x07\\xff'\ntb."
    assert loads(two).tolist() == [7, 255]
    for damaged in (b"", b"\x80", two[:-9], pickle.dumps([1])[:-1], b"cnumpy\nndarray\n.", b"garbage"):
        with pytest.raises(ValueError, match="pickle"):
            loads(damaged)


# -- folders, tables, text --------------------------------------------------------------------------------------------


def test_folders(tmp_path: Path) -> None:
    for name in ("dog/1.txt", "cat/b/2.txt", "cat/1.TXT", "cat/notes.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    texts = datasets.DatasetFolder(tmp_path, lambda path: Path(path).read_text(), (".txt",), transform=str.upper)
    assert texts.classes == ["cat", "dog"] and texts.targets == [0, 0, 1]
    assert [texts[k] for k in range(3)] == [("CAT/1.TXT", 0), ("CAT/B/2.TXT", 0), ("DOG/1.TXT", 1)]
    with pytest.raises(FileNotFoundError, match=r"cat has no file that ends in \.jpg"):
        datasets.ImageFolder(tmp_path)
    with pytest.raises(FileNotFoundError, match="has no folder"):
        datasets.ImageFolder(tmp_path / "cat" / "b")
    with pytest.raises(ValueError, match="one of extensions and is_valid_file"):
        datasets.DatasetFolder(tmp_path, str)


def test_folders_of_images(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for k, name in enumerate(("red", "green")):
        (tmp_path / name).mkdir()
        image.new("RGB", (3, 2), ["#ff0000", "#00ff00"][k]).save(tmp_path / name / "1.png")
    images = datasets.ImageFolder(tmp_path)
    assert images.classes == ["green", "red"] and [np.asarray(x)[0, 0].tolist() for x, _ in images.samples and images] == [
        [0, 255, 0], [255, 0, 0],
    ]  # fmt: skip


def test_tables(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("\ufeffa, b,price\n1,2,0.5\n\n3,4e1,1\n", encoding="utf-8")
    table = datasets.CSVDataset(path, target="price", columns=["b"])
    assert table.data.tolist() == [[2.0], [40.0]] and table.targets.tolist() == [0.5, 1.0] and len(table) == 2
    path.write_text("1;2;7\n3;4;8\n")
    table = datasets.CSVDataset(path, target="2", header=False, delimiter=";")
    assert table[1][0].tolist() == [3.0, 4.0] and table.targets.dtype == torch.int64
    for text, wrong in (
        ("a,b\n1,2\n3\n", "line 3: expected 2 cells, but got 1"), ("a,b\n1,x\n", "line 2: column 'b' has 'x', which is no number"),
        ("a,b\n", "has no rows"), ("", "has no rows"),
    ):  # fmt: skip
        path.write_text(text)
        with pytest.raises(ValueError, match=wrong):
            datasets.CSVDataset(path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="has no column 'c'; it has a, b"):
        datasets.CSVDataset(path, target="c")


def test_text(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("aäb" * 3, encoding="utf-8")
    text = datasets.TextDataset(path, 4, stride=2)
    assert text.vocabulary == "abä" and len(text) == 3
    assert [text.decode(tokens) for tokens, _ in (text[k] for k in range(3))] == ["aäba", "baäb", "äbaä"]
    assert text.decode(text[-1][1]) == "baäb"
    with pytest.raises(IndexError):
        text[3]
    with pytest.raises(ValueError, match="no character 'x'"):
        text.encode("x")
    with pytest.raises(ValueError, match="more than 9 characters, but got 9"):
        datasets.TextDataset(path, 9)
