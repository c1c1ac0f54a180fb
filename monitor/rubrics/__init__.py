"""The rubrics, by name."""
