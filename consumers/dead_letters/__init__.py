"""Dead letters: what a stage could not take in, with its raw bytes, its error and its position."""

from consumers.dead_letters.writing import MAX_BYTES, Headers, Placed, letter, send

__all__ = ["MAX_BYTES", "Headers", "Placed", "letter", "send"]
