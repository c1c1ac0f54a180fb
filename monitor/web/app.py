"""The pages: what was judged, and why. Server-rendered, without scripts.

Everything shown comes from users and models and is hostile until proven otherwise: templates escape all of it,
hidden characters are made visible, and the policy of the pages forbids scripts altogether.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
import structlog
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from monitor import summary
from monitor.errors import StoreError
from monitor.store import FAILING, Store
from monitor.web import filters
from monitor.web.headers import HEADERS, SecurityHeaders
from monitor.web.page import session_page
from monitor.web.report.base import SYMBOLS, counted, words
from monitor.web.report.reasons import unit
from monitor.web.text import attribute, session_ids, session_path, visible, visible_markup

DEFAULT_MEASURE: Final = "reverted"
LOOPBACK: Final = ("localhost", "127.0.0.1")
_KINDS: Final = (FAILING, "verdict", "skipped", "unscored")
_NOT_FOUND: Final = "No such session is stored. Its decision may be on its way, or retention has removed it."
_LOG = structlog.get_logger(__name__)


def create_app(store: Store, *, hosts: Sequence[str] = LOOPBACK, warning: str | None = None) -> Starlette:
    """Build the app of the pages.

    `hosts` are the host names it answers to (`*` for any): a page of another site must not reach a loopback port
    by a name of its own. `warning` is shown on top of every page, such as that transcripts are not redacted.
    """
    pages = _Pages(store, _environment(warning))
    return Starlette(
        routes=[
            Route("/", pages.index, name="index"),
            Route("/sessions/{ids:path}", pages.session, name="session"),
            Route("/session", pages.session, name="session_by_query"),
            Mount("/static", StaticFiles(packages=[("monitor.web", "static")]), name="static"),
        ],
        exception_handlers={
            HTTPException: pages.http_error,
            StoreError: pages.store_error,
            Exception: pages.unexpected,
        },
        middleware=[
            Middleware(SecurityHeaders),
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
        ],
    )


class _Pages:
    """The endpoints. They are plain functions, so that Starlette runs them in threads: the store blocks."""

    def __init__(self, store: Store, templates: Environment) -> None:
        self._store = store
        self._templates = templates

    def index(self, request: Request) -> Response:
        wanted = filters.read(request.query_params)
        totals = self._store.totals()
        choices = summary.choices(totals)
        measure = request.query_params.get("measure") or _default_measure(choices.measures)
        rows = () if totals.rebuilding else summary.summaries(totals, measure)
        page = self._store.sessions(wanted)
        following = _link(request.query_params, before=str(page.next)) if page.next else None
        return self._render(
            "sessions.html",
            page=page,
            wanted=wanted,
            filtered=filters.narrows(wanted),
            query=request.query_params,
            choices=choices,
            kinds=_KINDS,
            measure=measure,
            summaries=rows,
            scale=summary.scale(rows),
            totals=totals,
            pending=sum(totals.pending.values()),
            next_link=following,
            first_link=_link(request.query_params) if wanted.before is not None else None,
        )

    def session(self, request: Request) -> Response:
        ids = _ids(request)
        found = self._store.session(*ids) if ids else None
        if found is None:
            raise HTTPException(404, _NOT_FOUND)
        page = session_page(found, request.query_params.get("marks"))
        return self._render("session.html", session=found, page=page, address=_address(request))

    async def http_error(self, _request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - Starlette chose this handler by the type
        return self._error(error.status_code, error.detail)

    async def store_error(self, _request: Request, error: Exception) -> Response:
        return self._error(503, f"{error}. Nothing is lost meanwhile: records wait in Kafka. Reload in a moment.")

    async def unexpected(self, _request: Request, error: Exception) -> Response:
        _LOG.error("page_failed", error_type=type(error).__name__)
        answer = self._error(500, "This page has a fault. The log of the process says which; other pages work.")
        # This handler runs outside of the middleware.
        answer.headers.update(HEADERS)
        return answer

    def _error(self, status: int, detail: str) -> Response:
        title = HTTPStatus(status).phrase
        return self._render("error.html", status=status, title=title, detail=detail, code=status)

    def _render(self, template: str, *, code: int = 200, **values: Any) -> Response:
        return HTMLResponse(self._templates.get_template(template).render(**values), status_code=code)


def _environment(warning: str | None) -> Environment:
    templates = Environment(
        loader=PackageLoader("monitor.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        visible=visible,
        attribute=attribute,
        shown=visible_markup,
        percent=_percent,
        moment=_moment,
        iso=_iso,
        pretty=_pretty,
        event=_event,
    )
    templates.globals.update(
        session_path=session_path, warning=warning, symbols=SYMBOLS, counted=counted, words=words, unit=unit
    )
    return templates


def _default_measure(measures: Sequence[str]) -> str:
    return DEFAULT_MEASURE if DEFAULT_MEASURE in measures or not measures else measures[0]


def _link(query: Mapping[str, str], **changes: str) -> str:
    kept = {name: value for name, value in query.items() if value and name != "before"}
    return "/?" + urlencode(kept | changes)


def _address(request: Request) -> str:
    """Give a session page's own address, ready for a choice of marks to be put behind it."""
    kept = [(name, value) for name, value in request.query_params.items() if name != "marks"]
    return "?" + "".join(f"{urlencode([pair])}&" for pair in kept)


def _ids(request: Request) -> tuple[str, str, str] | None:
    if "ids" in request.path_params:
        raw = request.scope.get("raw_path") or request.url.path.encode()
        return session_ids(raw)
    query = request.query_params
    return query.get("tenant", ""), query.get("session_id", ""), query.get("segment", "")


def _percent(share: float | None) -> str:
    """Show a share with three digits that matter, as `0.52 %`."""
    if share is None:
        return "\u2013"
    return f"{share * 100:.3g}\u202f%" if share < 1 else "100\u202f%"


def _moment(milliseconds: float) -> str:
    return _utc(milliseconds).strftime("%Y-%m-%d %H:%M:%S")


def _iso(milliseconds: float) -> str:
    return _utc(milliseconds).isoformat(timespec="seconds")


def _utc(milliseconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)


def _pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _event(raw: bytes) -> dict[str, Any]:
    """Decode a late event for its page; it was checked before it was stored."""
    value = msgspec.json.decode(raw)
    return value if isinstance(value, dict) else {"type": "unknown"}
