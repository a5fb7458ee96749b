"""The command line, `python -m multigpu COMMAND ...`."""
