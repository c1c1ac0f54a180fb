"""Settings: every mistake is one line with key, value and what is allowed; secrets never show."""

from __future__ import annotations

import json
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from consumers.faust_app import credentials
from consumers.kafka import client_options, ssl_context
from monitor.config import KafkaSettings, Settings, assembly_policy, load, read_yaml
from monitor.errors import ConfigError

SECRET = "hunter2"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.upper().startswith("BACKSLIDE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "backslide.yaml"


def refusal(file: Path, values: Any) -> str:
    file.write_text(values if isinstance(values, str) else yaml.safe_dump(values))
    with pytest.raises(ConfigError) as caught:
        load(file)
    return str(caught.value).replace(str(file), "FILE")


def test_without_a_file_the_defaults_hold() -> None:
    assert load() == Settings()


def test_an_empty_file_is_fine(file: Path) -> None:
    file.write_text("# all commented out\n")
    assert load(file) == Settings()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"assembly": {"gap_s": "long"}}, "FILE: assembly.gap_s = 'long': Input should be a valid number"),
        ({"assembly": {"gap_s": -1}}, "FILE: assembly.gap_s = -1: Input should be greater than 0"),
        ({"assembly": {"gap_s": float("inf")}}, "FILE: assembly.gap_s = inf: Input should be a finite number"),
        ({"assembly": {"gap_s": float("nan")}}, "FILE: assembly.gap_s = nan: Input should be a finite number"),
        ({"judge": {"effort": "all"}}, "FILE: judge.effort = 'all': Input should be 'default', 'low', 'medium'"),
        ({"log": {"level": "loud"}}, "FILE: log.level = 'loud': Input should be 'debug', 'info'"),
        ({"topics": {"event_partitions": 0}}, "FILE: topics.event_partitions = 0: Input should be greater"),
        ({"kafka": {"group_prefix": "a b"}}, "FILE: kafka.group_prefix = 'a b': String should match pattern"),
        ({"health": {"judge_port": 70_000}}, "FILE: health.judge_port = 70000: Input should be less than"),
        ({"kafka": {"port": 1}}, "FILE: kafka.port: unknown key; allowed are bootstrap_servers, "),
        ({"kafak": {}}, "FILE: kafak: unknown key; allowed are production, kafka, topics, assembly, sampling"),
        ({"kafka": None}, "FILE: kafka: must be a mapping of keys to values; it is empty"),
        ({"kafka": "a:9092"}, "FILE: kafka: must be a mapping of keys to values; it is a str"),
        ({"kafka": {"security_protocol": "SASL_SSL"}}, "FILE: kafka: sasl_username and sasl_password are needed"),
        ({"production": True}, "sampling.salt is required with production: true"),
        ({"topics": {"max_message_bytes": 100_000}}, "topics.max_message_bytes = 100000 is too small"),
        ({"store": {"verdict_retention_d": 7}}, "store.verdict_retention_d = 7 is too short"),
        ("a: [", "FILE: not valid YAML: expected the node content, but found '<stream end>' at line 1, column 5"),
        ("- a", "FILE: must be a mapping of keys to values, not list"),
        ("1: 2", "FILE: 1: keys must be text, not int"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_mistake_names_key_value_and_what_is_allowed(file: Path, values: Any, message: str) -> None:
    found = refusal(file, values)
    assert message in found
    assert len(found.splitlines()) == 1


def test_all_mistakes_come_at_once(file: Path) -> None:
    found = refusal(file, {"assembly": {"gap_s": 0, "max_turns": 1}, "web": {"port": -1}})
    assert [line.split(" = ")[0] for line in found.splitlines()] == [
        "FILE: assembly.gap_s",
        "FILE: assembly.max_turns",
        "FILE: web.port",
    ]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.yaml", tmp_path):
        with pytest.raises(ConfigError, match=f"{path}: can't be read: "):
            read_yaml(path)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.yaml: not valid YAML"):
        read_yaml(binary)


@pytest.mark.parametrize(
    "values",
    [
        {"kafka": {"sasl_password": [SECRET]}},
        {"kafka": {"sasl_pasword": SECRET}},
        {"kafka": SECRET},
        {"kafka": {"security_protocol": "SASL_SSL", "sasl_password": SECRET}},
        {"sampling": {"salt": {"a": SECRET}}},
        {"judge": {"api_key": [SECRET]}},
        {"judge": {"apikey": SECRET}},
        {"store": f"postgresql://user:{SECRET}@host/db"},
        {"store": {"url": [f"postgresql://user:{SECRET}@host/db"]}},
        {"sampling": {"salt": SECRET}, "kafka": {"sasl_password": SECRET}, "web": {"port": -1}},
        f"kafka:\n  sasl_password: '{SECRET}\n",
        f'kafka: {{sasl_password: "{SECRET}" oops}}\n',
    ],
    ids=str,
)
def test_a_secret_never_shows_in_a_message(file: Path, values: Any) -> None:
    assert SECRET not in refusal(file, values)


def test_a_secret_never_shows_in_settings_that_are_printed(file: Path) -> None:
    secrets = {"sampling": {"salt": SECRET}, "kafka": {"sasl_password": SECRET}, "judge": {"api_key": SECRET}}
    file.write_text(yaml.safe_dump(secrets))
    settings = load(file)
    assert settings.kafka.sasl_password is not None
    assert settings.kafka.sasl_password.get_secret_value() == SECRET
    assert SECRET not in repr(settings) + str(settings) + settings.model_dump_json()


def test_the_environment_wins_over_the_file_key_by_key(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("kafka: {bootstrap_servers: 'file:1', session_timeout_s: 7}\nassembly: {gap_s: 5}")
    monkeypatch.setenv("BACKSLIDE_KAFKA__BOOTSTRAP_SERVERS", "env:1")
    monkeypatch.setenv("BACKSLIDE_SAMPLING__ASSISTANTS", '{"a": ["1", "2"]}')
    settings = load(file)
    assert settings.kafka.bootstrap_servers == "env:1"
    assert settings.kafka.session_timeout_s == 7.0
    assert settings.assembly.gap_s == 5.0
    assert settings.sampling.assistants == {"a": ["1", "2"]}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("BACKSLIDE_ASSEMBLY__GAP_S", "long", "BACKSLIDE_ASSEMBLY__GAP_S: assembly.gap_s = 'long': "),
        (
            "BACKSLIDE_KAFKA__PASSCODE",
            SECRET,
            "BACKSLIDE_KAFKA__PASSCODE: kafka.passcode: unknown key; allowed are ",
        ),
        ("BACKSLIDE_KAFKA", SECRET, 'environment (BACKSLIDE_*): error parsing value for field "kafka"'),
        ("BACKSLIDE_SAMPLING__ASSISTANTS", "{bad", 'error parsing value for field "sampling"'),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(
    name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as caught:
        load()
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


def test_overrides_reach_nested_keys_and_leave_their_neighbors(file: Path) -> None:
    file.write_text("topics: {prefix: 'p.', events: e}")
    settings = load(file, {"topics.events": "other", "judge.model": "lexical"})
    assert (settings.topics.prefix, settings.topics.events) == ("p.", "other")


KEYS = st.sampled_from(sorted({*Settings.model_fields, *KafkaSettings.model_fields, "nope"}))
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, JUNK, max_size=4))
def test_whatever_a_file_holds_it_is_settings_or_a_refusal(values: dict[str, Any]) -> None:
    try:
        settings = load(None, {key: value for key, value in values.items() if "." not in key})
    except ConfigError as error:
        assert str(error).strip()  # noqa: PT017 - not every input is refused
    else:
        assert assembly_policy(settings).gap > 0


def test_seconds_become_milliseconds() -> None:
    policy = assembly_policy(load(None, {"assembly": {"gap_s": 0.5, "grace_s": 1, "memory_s": 2, "max_age_s": 3}}))
    assert (policy.gap, policy.grace, policy.memory, policy.max_age) == (500, 1_000, 2_000, 3_000)


# -- how clients connect ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test", "-days", "1"]
    subprocess.run([*line, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


def kafka_settings(**values: Any) -> KafkaSettings:
    return load(None, {"kafka": values}).kafka


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl_over_tls_reaches_both_clients(mechanism: str, certificate: tuple[Path, Path]) -> None:
    kafka = kafka_settings(
        bootstrap_servers="a:1,b:2",
        security_protocol="SASL_SSL",
        sasl_mechanism=mechanism,
        sasl_username="user",
        sasl_password=SECRET,
        ssl_cafile=str(certificate[0]),
    )
    options = client_options(kafka)
    context = options.pop("ssl_context")
    assert options == {
        "bootstrap_servers": "a:1,b:2",
        "security_protocol": "SASL_SSL",
        "client_id": "backslide",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "user",
        "sasl_plain_password": SECRET,
    }
    faust = credentials(kafka)
    assert (faust.username, faust.password, faust.mechanism.value) == ("user", SECRET, mechanism)
    for each in (context, faust.ssl_context):
        assert each.verify_mode == ssl.CERT_REQUIRED
        assert each.check_hostname
        assert each.cert_store_stats()["x509"] == 1  # only the given CA is trusted


def test_plaintext_carries_neither_tls_nor_a_password() -> None:
    kafka = kafka_settings(sasl_username="user", sasl_password=SECRET)
    assert client_options(kafka).keys() == {"bootstrap_servers", "security_protocol", "client_id"}
    assert credentials(kafka) is None


def test_a_client_certificate_is_loaded(certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    ssl_context(kafka_settings(security_protocol="SSL", ssl_certfile=str(cert), ssl_keyfile=str(key)))


@pytest.mark.parametrize("wrong", ["ssl_cafile", "ssl_certfile"])
def test_a_missing_or_broken_certificate_names_the_key(
    wrong: str, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for path in (tmp_path / "missing.pem", broken):
        kafka = kafka_settings(security_protocol="SSL", ssl_keyfile=str(certificate[1]), **{wrong: str(path)})
        for connect in (client_options, credentials):
            with pytest.raises(ConfigError, match=f"kafka.{wrong} = .*{path.name}.*can't be used"):
                connect(kafka)


def test_the_schema_of_settings_can_be_printed() -> None:
    described = json.dumps(Settings.model_json_schema())
    assert "Silence that ends a session." in described


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("BACKSLIDE_SAMPLNG__SALT", "unknown section 'samplng'"),
        ("BACKSLIDE_JUDGE__MODLE", "judge.modle: unknown key"),
    ],
)
def test_a_mistyped_variable_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, says: str) -> None:
    monkeypatch.setenv(name, "x")
    with pytest.raises(ConfigError, match=says) as caught:
        load()
    assert str(caught.value).startswith(name)


def test_variables_that_only_share_the_prefix_are_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSLIDE_PORT", "tcp://10.0.0.1:80")
    monkeypatch.setenv("BACKSLIDE_SUPERVISED", "1")
    load()
