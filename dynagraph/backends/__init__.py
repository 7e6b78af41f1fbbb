"""Backends: from a graph to a program.  `registry` knows them by name; `reference` defines what is correct."""
