"""``torch.utils.tensorboard``'s writers: scalars, histograms, images, figures, texts and hyperparameters in event files.

The package tensorboard writes the files and defines what stands in them; it is imported when a writer is made.
"""

from __future__ import annotations

import datetime
import importlib
import io
import os
import socket
import struct
import time
import zlib
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.missing import refused

_MODULES = {
    "Writer": ("tensorboard.summary.writer.event_file_writer", "EventFileWriter"),
    "event": ("tensorboard.compat.proto.event_pb2", ""), "summary": ("tensorboard.compat.proto.summary_pb2", ""),
    "tensor": ("tensorboard.compat.proto.tensor_pb2", "TensorProto"),
    "shape": ("tensorboard.compat.proto.tensor_shape_pb2", "TensorShapeProto"),
    "text": ("tensorboard.plugins.text.plugin_data_pb2", "TextPluginData"), "api": ("tensorboard.plugins.hparams.api_pb2", ""),
    "hparams": ("tensorboard.plugins.hparams.plugin_data_pb2", "HParamsPluginData"),
    "tags": ("tensorboard.plugins.hparams.metadata", ""),
}  # fmt: skip
_found: dict[str, Any] = {}
__dynagraph_mutable__ = ("_found",)


def _package() -> Any:
    """What is used of the package tensorboard; ImportError where it is not installed."""
    if not _found:
        try:
            loaded = {own: importlib.import_module(module) for own, (module, _) in _MODULES.items()}
        except ImportError as error:
            raise ImportError(f"torch.utils.tensorboard needs the package tensorboard: pip install tensorboard ({error})") from None
        _found.update({own: getattr(loaded[own], name) if name else loaded[own] for own, (_, name) in _MODULES.items()})
    return SimpleNamespace(**_found)


def _array(value: Any) -> np.ndarray:
    found = value.detach().cpu()._array if isinstance(value, Tensor) else np.asarray(value)
    return found.astype(np.float32) if found.dtype.kind == "V" else found


def _default_bins() -> np.ndarray:
    """TensorFlow's: powers of 1.1 from 1e-12 to 1e20, on both sides of 0."""
    count = int(np.ceil(np.log(1e20 / 1e-12) / np.log(1.1)))
    up = 1e-12 * np.cumprod(np.concatenate([[1.0], np.full(count - 1, 1.1)]))
    return np.concatenate([-up[::-1], [0.0], up])


_BINS = _default_bins()


def _histogram(values: np.ndarray, bins: Any, max_bins: int | None) -> dict[str, Any]:
    """The fields of a histogram: from the bin before the first that has values to the last that has some."""
    values = values.astype(float).reshape(-1)
    if not values.size:
        raise ValueError("The input has no element.")
    counts, limits = np.histogram(values, bins=_BINS if isinstance(bins, str) and bins == "tensorflow" else bins)
    if max_bins is not None and len(counts) > max_bins:
        step = len(counts) // max_bins
        counts = np.add.reduceat(counts, np.arange(0, len(counts), step))
        limits = np.append(limits[:-1:step], limits[-1])
    filled = np.flatnonzero(counts)
    if not filled.size:
        raise ValueError("no value lies within the bins")
    first, last = filled[0], filled[-1]
    shown = np.concatenate([[counts[first - 1] if first else 0], counts[first : last + 1]])
    about = {"min": values.min(), "max": values.max(), "num": len(values), "sum": values.sum(), "sum_squares": values @ values}
    return {**about, "bucket_limit": limits[first : last + 2].tolist(), "bucket": shown.tolist()}


def _pixels(image: np.ndarray, order: str) -> np.ndarray:
    """An image as rows, columns and channels of bytes; floats are from 0 to 1."""
    letters = order.upper()
    if len(set(letters)) != len(letters) or len(letters) != image.ndim or not set(letters) <= set("NHWC"):
        raise ValueError(f"an image of {image.ndim} dimensions is not of the format {order!r}")
    if "C" not in letters:
        image, letters = image[..., None], letters + "C"
    image = image.transpose([letters.index(c) for c in "NHWC" if c in letters])
    if "N" in letters:  # side by side in a grid of eight columns
        count, height, width, channels = image.shape
        columns = min(count, 8)
        rows = -(-count // columns)
        image = np.concatenate([image, np.zeros((rows * columns - count, height, width, channels), image.dtype)])
        image = (
            image.reshape(rows, columns, height, width, channels)
            .transpose(0, 2, 1, 3, 4)
            .reshape(rows * height, columns * width, channels)
        )
    scale = 1 if image.dtype == np.uint8 else 255
    found = (image.astype(np.float32) * scale).clip(0, 255).astype(np.uint8)
    return found.repeat(3, axis=2) if found.shape[2] == 1 else found


def _png(pixels: np.ndarray) -> bytes:
    height, width, channels = pixels.shape
    kinds = {3: 2, 4: 6}
    if channels not in kinds:
        raise ValueError(f"an image has 1, 3 or 4 channels, not {channels}")

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)  # each row: no filter, the bytes
    header = struct.pack(">2I5B", width, height, 8, kinds[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes())) + chunk(b"IEND", b"")


class FileWriter:
    """Writes events to a file in a folder."""

    def __init__(self, log_dir: Any, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = ""):
        self._tensorboard = _package()
        self.event_writer = self._tensorboard.Writer(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        """The folder."""
        found: str = self.event_writer.get_logdir()
        return found

    def add_event(self, event: Any, step: Any = None, walltime: float | None = None) -> None:
        """Write an event, of a step and a time."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary: Any, global_step: Any = None, walltime: float | None = None) -> None:
        """Write an event of a summary."""
        self.add_event(self._tensorboard.event.Event(summary=summary), global_step, walltime)

    def flush(self) -> None:
        """Bring what was written to the file."""
        self.event_writer.flush()

    def close(self) -> None:
        """Close the file."""
        self.event_writer.close()

    def reopen(self) -> None:
        """Go on in another file of the folder."""
        self.event_writer.reopen()


class SummaryWriter:
    """Writes what TensorBoard shows to files in a folder: `log_dir`, or one in ``runs`` by the time and this machine's name."""

    def __init__(
        self, log_dir: Any = None, comment: str = "", purge_step: int | None = None, max_queue: int = 10, flush_secs: int = 120,
        filename_suffix: str = "",
    ):  # fmt: skip
        now = datetime.datetime.now().strftime("%b%d_%H-%M-%S")
        self.log_dir = log_dir or os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.purge_step, self.max_queue, self.flush_secs, self.filename_suffix = purge_step, max_queue, flush_secs, filename_suffix
        self.default_bins = _BINS.tolist()
        self.all_writers: dict[str, FileWriter] | None = None
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        """The folder's own writer: a new one after `close`."""
        if self.all_writers is None:
            self.file_writer = self._new_writer(self.log_dir)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                event = self.file_writer._tensorboard.event
                self.file_writer.add_event(event.Event(step=self.purge_step, file_version="brain.Event:2"))
                log = event.SessionLog(status=event.SessionLog.START)
                self.file_writer.add_event(event.Event(step=self.purge_step, session_log=log))
                self.purge_step = None
        return self.file_writer

    def _new_writer(self, folder: Any) -> FileWriter:
        return FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)

    def get_logdir(self) -> Any:
        """The folder."""
        return self.log_dir

    def _add(self, step: Any, walltime: float | None, tag: str, plugin: str = "", content: bytes = b"", **value: Any) -> None:
        """Write a summary of one value."""
        self._get_file_writer().add_summary(_summary(tag, plugin, content, **value), step, walltime)

    # -- numbers --
    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: Any = None, walltime: float | None = None, new_style: bool = False,
        double_precision: bool = False,
    ) -> None:  # fmt: skip
        """A number."""
        number = _number(scalar_value)
        if not new_style:
            self._add(global_step, walltime, tag, simple_value=number)
            return
        fields: dict[str, Any] = (
            {"double_val": [number], "dtype": "DT_DOUBLE"} if double_precision else {"float_val": [number], "dtype": "DT_FLOAT"}
        )
        self._add(global_step, walltime, tag, "scalars", tensor=_package().tensor(**fields))

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Several numbers in one plot, each with a folder of its own."""
        folder = self._get_file_writer().get_logdir()
        assert self.all_writers is not None
        for tag, value in tag_scalar_dict.items():
            place = f"{folder}/{main_tag.replace('/', '_')}_{tag}"
            if place not in self.all_writers:
                self.all_writers[place] = self._new_writer(place)
            self.all_writers[place].add_summary(_summary(main_tag, simple_value=_number(value)), global_step, walltime)

    def add_histogram(
        self, tag: str, values: Any, global_step: Any = None, bins: Any = "tensorflow", walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """How often numbers lie within bins."""
        fields = _histogram(_array(values), bins, max_bins)
        self._add(global_step, walltime, tag, histo=_package().summary.HistogramProto(**fields))

    def add_histogram_raw(
        self, tag: str, min: Any, max: Any, num: Any, sum: Any, sum_squares: Any, bucket_limits: Any, bucket_counts: Any,
        global_step: Any = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """A histogram that is counted already."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        histogram = _package().summary.HistogramProto(
            min=min,
            max=max,
            num=num,
            sum=sum,
            sum_squares=sum_squares,
            bucket_limit=list(bucket_limits),
            bucket=list(bucket_counts),
        )
        self._add(global_step, walltime, tag, histo=histogram)

    # -- images and texts --
    def add_image(
        self, tag: str, img_tensor: Any, global_step: Any = None, walltime: float | None = None, dataformats: str = "CHW"
    ) -> None:
        """An image, of bytes or of floats from 0 to 1; `dataformats` says the order of its dimensions."""
        pixels = _pixels(_array(img_tensor), dataformats)
        height, width, channels = pixels.shape
        image = _package().summary.Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=_png(pixels))
        self._add(global_step, walltime, tag, image=image)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: Any = None, walltime: float | None = None, dataformats: str = "NCHW"
    ) -> None:
        """Images side by side."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(self, tag: str, figure: Any, global_step: Any = None, close: bool = True, walltime: float | None = None) -> None:
        """A figure of matplotlib's, or a list of them."""
        for each in figure if isinstance(figure, list) else [figure]:
            file = io.BytesIO()
            each.savefig(file, format="rgba", dpi=each.dpi)
            width, height = (int(n) for n in each.canvas.get_width_height(physical=True))
            self.add_image(tag, np.frombuffer(file.getvalue(), np.uint8).reshape(height, width, 4), global_step, walltime, "HWC")
            if close:
                importlib.import_module("matplotlib.pyplot").close(each)

    def add_text(self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None) -> None:
        """A text, in Markdown."""
        package = _package()
        shape = package.shape(dim=[package.shape.Dim(size=1)])
        tensor = package.tensor(dtype="DT_STRING", string_val=[text_string.encode()], tensor_shape=shape)
        self._add(global_step, walltime, f"{tag}/text_summary", "text", package.text(version=0).SerializeToString(), tensor=tensor)

    # -- hyperparameters --
    def add_hparams(
        self, hparam_dict: dict[str, Any], metric_dict: dict[str, Any], hparam_domain_discrete: dict[str, list[Any]] | None = None,
        run_name: str | None = None, global_step: Any = None,
    ) -> None:  # fmt: skip
        """The hyperparameters of a run, and what came of it."""
        summaries = _hparams(hparam_dict, metric_dict, hparam_domain_discrete or {})
        folder = os.path.join(self._get_file_writer().get_logdir(), run_name or str(time.time()))
        with SummaryWriter(folder) as writer:
            for summary in summaries:
                writer.file_writer.add_summary(summary)
            for tag, value in metric_dict.items():
                writer.add_scalar(tag, value, global_step)

    # -- the files --
    def flush(self) -> None:
        """Bring what was written to the files."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Close the files; what is added later goes to others."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


for _name in ("tensor", "graph", "onnx_graph", "video", "audio", "embedding", "pr_curve", "pr_curve_raw", "custom_scalars", "mesh"):
    _why = "dynagraph.torch writes scalars, histograms, images, figures, texts and hyperparameters"
    setattr(SummaryWriter, f"add_{_name}", refused(f"torch.utils.tensorboard.SummaryWriter.add_{_name}", _why))


def _number(value: Any) -> float:
    found = _array(value)
    if found.size != 1:
        raise ValueError(f"a scalar is one number, not {found.size}")
    return float(found.reshape(()))


def _summary(tag: str, plugin: str = "", content: bytes = b"", **value: Any) -> Any:
    summary = _package().summary
    if plugin:
        data = summary.SummaryMetadata.PluginData(plugin_name=plugin, content=content)
        value["metadata"] = summary.SummaryMetadata(plugin_data=data)
    return summary.Summary(value=[summary.Summary.Value(tag=tag, **value)])


def _hparams(hparams: Any, metrics: Any, domains: dict[str, list[Any]]) -> list[Any]:
    """The three summaries of a run: what is varied and measured, the values, and that it is over."""
    package = _package()
    api, tags = package.api, package.tags
    for name, given in (("hparam_dict", hparams), ("metric_dict", metrics)):
        if not isinstance(given, dict):
            raise TypeError(f"parameter: {name} should be a dictionary, nothing logged.")
    infos, values = [], {}
    for key, value in hparams.items():
        if value is None:
            continue
        value = _number(value) if isinstance(value, Tensor) else value
        kind = next((k for t, k in ((bool, "bool"), (str, "string"), ((int, float), "number")) if isinstance(value, t)), None)
        if kind is None:
            raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")
        info = api.HParamInfo(name=key, type=api.DataType.Value(f"DATA_TYPE_{'FLOAT64' if kind == 'number' else kind.upper()}"))
        for choice in domains.get(key, ()):
            setattr(info.domain_discrete.values.add(), f"{kind}_value", choice)
        infos.append(info)
        values[key] = (f"{kind}_value", value)
    experiment = api.Experiment(hparam_infos=infos, metric_infos=[api.MetricInfo(name=api.MetricName(tag=tag)) for tag in metrics])
    begin, end = package.hparams(version=tags.PLUGIN_DATA_VERSION), package.hparams(version=tags.PLUGIN_DATA_VERSION)
    for key, (name, value) in values.items():
        setattr(begin.session_start_info.hparams[key], name, value)
    end.session_end_info.status = api.Status.Value("STATUS_SUCCESS")
    whole = package.hparams(experiment=experiment, version=tags.PLUGIN_DATA_VERSION)
    parts = ((tags.EXPERIMENT_TAG, whole), (tags.SESSION_START_INFO_TAG, begin), (tags.SESSION_END_INFO_TAG, end))
    return [_summary(tag, tags.PLUGIN_NAME, content.SerializeToString()) for tag, content in parts]


__all__ = ["FileWriter", "SummaryWriter"]
