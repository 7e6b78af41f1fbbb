"""Passes: from graph to graph, and from graph to loops; one file each."""
