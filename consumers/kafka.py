"""Clients of the brokers: one set of options for aiokafka, producers that keep what they promise, keys."""

from __future__ import annotations

import ssl
import struct
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)

from monitor.config import KafkaSettings, Settings
from monitor.errors import ConfigError

CLIENT_ID = "backslide"
# A record, or the batch that it was in, is over a limit of the client or of the broker.
TOO_LARGE: Final = (MessageSizeTooLargeError, RecordListTooLargeError)
_WORD: Final = struct.Struct("<I")


def client_options(kafka: KafkaSettings) -> dict[str, Any]:
    """Give the connection options that every aiokafka client takes."""
    options: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "security_protocol": kafka.security_protocol,
        "client_id": CLIENT_ID,
    }
    if kafka.security_protocol.startswith("SASL"):
        options["sasl_mechanism"] = kafka.sasl_mechanism
        options["sasl_plain_username"] = kafka.sasl_username
        options["sasl_plain_password"] = kafka.sasl_password.get_secret_value() if kafka.sasl_password else None
    if kafka.security_protocol.endswith("SSL"):
        options["ssl_context"] = ssl_context(kafka)
    return options


def ssl_context(kafka: KafkaSettings) -> ssl.SSLContext:
    """Build the TLS context from the CA file, and the client certificate if there is one.

    Raises `ConfigError` when a file can't be used.
    """
    try:
        context = ssl.create_default_context(cafile=str(kafka.ssl_cafile) if kafka.ssl_cafile else None)
    except OSError as error:  # what ssl raises is one, too
        raise ConfigError(f"kafka.ssl_cafile = {kafka.ssl_cafile}: can't be used: {error}") from None
    if kafka.ssl_certfile:
        try:
            context.load_cert_chain(kafka.ssl_certfile, kafka.ssl_keyfile)
        except OSError as error:
            raise ConfigError(
                f"kafka.ssl_certfile = {kafka.ssl_certfile}, kafka.ssl_keyfile = {kafka.ssl_keyfile}: "
                f"can't be used: {error}"
            ) from None
    return context


def producer(settings: Settings, *, largest: int | None = None) -> AIOKafkaProducer:
    """Make a producer whose records are acknowledged by all replicas; `largest` (bytes) is for others' records.

    It isn't idempotent: a record that the broker finds too large leaves a gap in an idempotent producer's
    sequence, and every send after it fails. What is sent twice is the same bytes and counts once (A5, R1).
    """
    chosen: dict[str, Any] = {
        "acks": "all",
        "max_request_size": largest or settings.topics.max_message_bytes,
        # The broker measures whole batches: a larger one would be refused with all records in it.
        "max_batch_size": min(262_144, settings.topics.max_message_bytes),
        "linger_ms": 2,
        "request_timeout_ms": 30_000,
        "retry_backoff_ms": 200,
    }
    return AIOKafkaProducer(**client_options(settings.kafka), **chosen)


def is_passing(error: BaseException) -> bool:
    """Say whether a send may be tried again: the broker was away or busy, and the record is not at fault."""
    return isinstance(error, KafkaTimeoutError) or (isinstance(error, KafkaError) and bool(error.retriable))


def consumer(settings: Settings, group: str | None, **options: Any) -> AIOKafkaConsumer:
    """Make a consumer that commits only when told to. `group` comes without the configured prefix."""
    kafka = settings.kafka
    chosen: dict[str, Any] = {
        "group_id": f"{kafka.group_prefix}-{group}" if group else None,
        "enable_auto_commit": False,
        "session_timeout_ms": int(kafka.session_timeout_s * 1000),
        "heartbeat_interval_ms": max(int(kafka.session_timeout_s * 1000 / 5), 200),
        "fetch_max_bytes": 16_777_216,
        "max_partition_fetch_bytes": max(4_194_304, settings.topics.max_message_bytes),
        "max_poll_records": 500,
        "retry_backoff_ms": 200,
        # A changed partition count has to be seen soon (A8); the default is five minutes.
        "metadata_max_age_ms": 30_000,
    }
    if group and kafka.instance_id:
        chosen["group_instance_id"] = f"{kafka.instance_id}-{group}"
    return AIOKafkaConsumer(**client_options(kafka), **{**chosen, **options})


def admin(settings: Settings) -> AIOKafkaAdminClient:
    """Make an admin client."""
    return AIOKafkaAdminClient(**client_options(settings.kafka), request_timeout_ms=20_000)


def event_key(tenant: str, session_id: str) -> bytes:
    """Give the record key of a session's events, `tenant/session_id`: one key, one partition (A8)."""
    return f"{tenant}/{session_id}".encode()


def partition_for(key: bytes, partitions: int) -> int:
    """Give the partition that the Java clients, aiokafka and librdkafka's murmur2 partitioner choose for a key."""
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    """Hash as `org.apache.kafka.common.utils.Utils.murmur2` does; a word at a time, 12 x as fast as aiokafka's."""
    whole = len(data) & ~3
    hashed = 0x9747B28C ^ len(data)
    for (word,) in _WORD.iter_unpack(data[:whole]):
        mixed = word * 0x5BD1E995 & 0xFFFFFFFF
        hashed = (hashed * 0x5BD1E995 ^ (mixed ^ mixed >> 24) * 0x5BD1E995) & 0xFFFFFFFF
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * 0x5BD1E995 & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return hashed ^ hashed >> 15
