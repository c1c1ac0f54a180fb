"""Faust as a small embedded stage: one app, no web server, no tables, no command line; raw bytes in and out.

The settings are those under which a stage lost nothing in chaos runs. Two facts of Faust shape what is here:
`await topic.send(...)` merely buffers, so `deliver` waits for the broker; and `app.stop()` may hang for as long as
the broker is away, so `stop_within` bounds it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import faust
from aiokafka.errors import MessageSizeTooLargeError

from consumers.kafka import ssl_context
from monitor.config import KafkaSettings, Settings
from monitor.errors import BackslideError

Headers = list[tuple[str, bytes]]

# A send outlives any outage of the broker that the process itself outlives.
SEND_TIMEOUT_S: Final = 1200.0
# Below errors these are chatty, and at debug they log whole messages.
_LOUD_LOGGERS: Final = ("faust", "mode", "aiokafka")


class _App(faust.App):
    def _create_directories(self) -> None:
        """Leave the working directory alone: nothing of a stage without tables is kept on disk."""


class RecordTooLarge(BackslideError):
    """The broker, or the client on its behalf, refused a record for its size; sending it again is of no use."""


def create_app(settings: Settings, stage: str) -> faust.App:
    """Create the app of a stage, inside a running event loop; its consumer group is `<group_prefix>-<stage>`."""
    for name in _LOUD_LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    kafka = settings.kafka
    session_timeout = kafka.session_timeout_s
    return _App(
        f"{kafka.group_prefix}-{stage}",
        broker=[f"kafka://{server.strip()}" for server in kafka.bootstrap_servers.split(",")],
        broker_credentials=credentials(kafka),
        loop=asyncio.get_running_loop(),
        store="memory://",
        autodiscover=False,
        web_enabled=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        table_standby_replicas=0,  # otherwise Faust's own assignor is used
        consumer_auto_offset_reset="earliest",
        consumer_group_instance_id=kafka.instance_id,
        # A fetch answers with at least one record, however large; this is the usual case.
        consumer_max_fetch_size=max(1_048_576, settings.topics.max_message_bytes),
        producer_acks=-1,
        producer_request_timeout=SEND_TIMEOUT_S,
        producer_max_request_size=settings.topics.max_message_bytes,
        broker_commit_interval=0.2,
        broker_session_timeout=session_timeout,
        broker_heartbeat_interval=session_timeout / 10,
        broker_rebalance_timeout=max(15.0, session_timeout),
        broker_request_timeout=max(30.0, session_timeout),
        stream_wait_empty=True,  # without it, records are lost on a plain stop
        stream_buffer_maxsize=4096,
    )


def credentials(kafka: KafkaSettings) -> Any:
    """Translate the security settings into Faust's credentials; None for PLAINTEXT."""
    protocol = kafka.security_protocol
    context = ssl_context(kafka) if protocol.endswith("SSL") else None
    if protocol == "PLAINTEXT":
        return None
    if protocol == "SSL":
        return faust.SSLCredentials(context=context)
    return faust.SASLCredentials(
        username=kafka.sasl_username,
        password=kafka.sasl_password.get_secret_value() if kafka.sasl_password else None,
        mechanism=kafka.sasl_mechanism,
        ssl_context=context,
    )


def raw_topic(app: faust.App, name: str) -> Any:
    """Give a topic whose keys and values are plain bytes."""
    return app.topic(name, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")


async def deliver(
    topic: Any, key: bytes | None, value: bytes, headers: Headers | None = None, partition: int | None = None
) -> None:
    """Send a record and wait until the broker has acknowledged it.

    Raises `RecordTooLarge`; any other error means that the record may or may not be there.
    """
    try:
        acknowledged = await topic.send(key=key, value=value, headers=headers, partition=partition)
        await acknowledged
    except Exception as error:
        # The client's own check comes wrapped by Faust, the broker's refusal comes as it is.
        if isinstance(error, MessageSizeTooLargeError) or isinstance(error.__cause__, MessageSizeTooLargeError):
            raise RecordTooLarge(f"a record of {len(value)} bytes is too large for the broker") from None
        raise


async def stop_within(app: faust.App, seconds: float) -> bool:
    """Stop an app; False when it hasn't stopped in time and the process should end as it is.

    `asyncio.wait_for` is no bound here: cancelling `app.stop()` waits for the broker too.
    """
    task = asyncio.ensure_future(app.stop())
    done, _ = await asyncio.wait({task}, timeout=seconds)
    return bool(done) and not task.cancelled() and task.exception() is None
