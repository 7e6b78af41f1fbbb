"""The graph of a capture, and which values stand for its nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from dynagraph.array_libraries import NUMPY
from dynagraph.doors.numpy import Builder
from dynagraph.frontend.guards.sources import Source
from dynagraph.frontend.kinds.values import Array, Value
from dynagraph.ir.graph import Graph, Node


class GraphState(ABC):
    def __init__(self, name: str):
        self.graph = Graph(name)
        self.builder = Builder(self.graph, lambda node: node in self.scalars, self.rebased)
        self.scalars: set[Node] = set()
        self.arrays: dict[Node, Array] = {}  # which value a node is the current one of
        self.objects: dict[Source, Any] = {}  # the caller's objects that were wrapped
        self.effects: list[tuple[Any, tuple[Value, ...]]] = []
        self.warning: dict[Node, int] = {}  # views that warn when they are written to, and the steps that made them
        self.library = NUMPY  # whose arrays the capture is of

    @abstractmethod
    def rebased(self, node: Node) -> Node:
        """A view of the present values of arrays as a view of what was there first."""
