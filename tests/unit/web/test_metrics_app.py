"""The scrape target and its probes."""

from starlette.testclient import TestClient

from monitor.store import Store
from monitor.web import create_metrics_app
from tests.unit.store.builders import decision, judgement, policy


def test_metrics_are_the_totals_of_the_store(store: Store) -> None:
    store.record([policy(), decision(), judgement()])
    with TestClient(create_metrics_app(store)) as client:
        answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert 'measure="reverted",mode="event",rubric="correction",stratum="base"} 40.0' in answer.text
    assert "backslide_store_up 1.0" in answer.text


def test_probes(store: Store) -> None:
    with TestClient(create_metrics_app(store)) as client:
        assert client.get("/healthz").text == "alive\n"
        assert client.get("/readyz").text == "ready\n"
        with store._engine.begin() as connection:
            connection.exec_driver_sql("UPDATE meta SET value = 1 WHERE name = 'rebuilding'")
        assert client.get("/readyz").status_code == 503


def test_a_store_that_is_down_is_not_ready_but_alive_and_scraped(store: Store) -> None:
    with store._engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE meta")
    with TestClient(create_metrics_app(store)) as client:
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
        answer = client.get("/metrics")
    assert answer.status_code == 200
    assert "backslide_store_up 0.0" in answer.text
    assert "backslide_weighted" not in answer.text
