"""The `dynagraph` command and its subcommands."""
