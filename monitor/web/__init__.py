"""The pages and the quality metrics: `create_app(store)`, `create_metrics_app(store)`."""

from monitor.web.app import create_app
from monitor.web.metrics_app import create_metrics_app

__all__ = ["create_app", "create_metrics_app"]
