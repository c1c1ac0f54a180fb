"""Prompts as data: one folder a rubric."""
