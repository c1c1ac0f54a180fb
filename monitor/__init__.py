"""Backslide's core: everything that could run over a file on a laptop."""

__version__ = "0.1.0"
