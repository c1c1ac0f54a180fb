"""The quality `/metrics`, on a port of its own, with probes. It shows numbers only (R4)."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from monitor.errors import StoreError
from monitor.exporter import Exposition
from monitor.store import Store


def create_metrics_app(store: Store) -> Starlette:
    """Build the app with `/metrics`, `/healthz` (the process lives) and `/readyz` (the store answers)."""
    exposition = Exposition(store)

    # Plain functions, so that Starlette runs them in threads: the store blocks.
    def metrics(request: Request) -> Response:
        body, content_type = exposition.render(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type})

    def readyz(_request: Request) -> Response:
        try:
            trusted = store.ping()
        except StoreError as error:
            return PlainTextResponse(f"not ready: {error}\n", status_code=503)
        if not trusted:
            remedy = "wait for the rebuild of the totals, or start it again if it was killed"
            return PlainTextResponse(f"not ready: {remedy}\n", status_code=503)
        return PlainTextResponse("ready\n")

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("alive\n")

    return Starlette(
        routes=[
            Route("/metrics", metrics, name="metrics"),
            Route("/healthz", healthz, name="healthz"),
            Route("/readyz", readyz, name="readyz"),
        ]
    )
