"""The symbolic executor: from one call of a function to a graph, guards, and a recipe for its results."""
