"""Real services for tests: Kafka, Tansu, Prometheus and Chromium, all on 127.0.0.1."""
