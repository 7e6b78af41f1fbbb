"""The intermediate representation: graphs, the op table, passes, the loop IR."""
