"""Measurements behind figures in the documentation: `python -m ops.bench.NAME --help`."""
