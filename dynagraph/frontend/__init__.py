"""The frontend: from bytecode to a graph, guards and a recipe for the result."""
