"""Backends: from a graph to an executable.  `registry` finds them by name; `reference` defines what is correct."""
