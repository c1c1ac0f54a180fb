"""What Faust is told: security as in the settings, and nothing on disk."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

from consumers.faust_app import create_app, credentials
from monitor.config import KafkaSettings, Settings

SASL: dict[str, Any] = {"sasl_username": "user", "sasl_password": "word"}


@pytest.mark.parametrize(
    ("values", "protocol", "mechanism", "tls"),
    [
        ({}, "PLAINTEXT", None, False),
        ({"security_protocol": "SSL"}, "SSL", None, True),
        ({"security_protocol": "SASL_PLAINTEXT", **SASL}, "SASL_PLAINTEXT", "SCRAM-SHA-512", False),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", **SASL},
            "SASL_SSL",
            "PLAIN",
            True,
        ),
    ],
)
def test_security_settings_reach_the_client(
    values: dict[str, Any], protocol: str, mechanism: str | None, tls: bool
) -> None:
    got = credentials_to_aiokafka_auth(credentials(KafkaSettings(**values)))
    assert got["security_protocol"] == protocol
    assert got.get("sasl_mechanism") == mechanism
    assert isinstance(got.get("ssl_context"), ssl.SSLContext) is tls
    if mechanism:
        assert (got["sasl_plain_username"], got["sasl_plain_password"]) == ("user", "word")


async def test_the_app_is_a_small_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings(
        kafka={"bootstrap_servers": "a:1, b:2", "session_timeout_s": 45.0, "instance_id": "zero"},  # type: ignore[arg-type]
        topics={"max_message_bytes": 3_000_000},  # type: ignore[arg-type]
    )
    app = create_app(settings, "sample")
    app.finalize()
    conf = app.conf
    assert conf.id == "backslide-sample"
    assert [(url.host, url.port) for url in conf.broker] == [("a", 1), ("b", 2)]
    assert (conf.broker_session_timeout, conf.broker_heartbeat_interval) == (45.0, 4.5)
    assert conf.broker_request_timeout >= conf.broker_session_timeout
    assert (conf.producer_acks, conf.producer_max_request_size) == (-1, 3_000_000)
    assert conf.consumer_group_instance_id == "zero"
    assert conf.stream_wait_empty
    assert not conf.web_enabled
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240 - a test
