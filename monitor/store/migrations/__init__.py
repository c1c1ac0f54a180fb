"""The schema's history; `monitor.store.connect.migrate` runs it."""
