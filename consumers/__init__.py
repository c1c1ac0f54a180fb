"""Backslide on Kafka: the processes and the `backslide` command."""
