"""Unit tests of the rubrics."""
