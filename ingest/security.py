"""Security: how clients come in at a broker that asks who they are - in Python, and in Spark.

Spark is given the text of certificates and keys, and no file: its executors may be elsewhere.
"""

import ssl
from pathlib import Path
from typing import Any, NoReturn

from headrace.config import Broker
from headrace.errors import ConfigError

LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


TLS = ("ca_file", "certificate_file", "key_file")
SASL = ("sasl_mechanism", "username", "password")


def check(broker: Broker) -> None:
    """Refuse settings that do not go together, and files that do not hold what they should."""
    if not broker.bootstrap and broker.protocol != "PLAINTEXT":
        _refuse(
            f"broker.protocol is {broker.protocol}, and broker.bootstrap names no broker",
            "The broker that `up` starts by itself speaks PLAINTEXT on this machine. Name yours.",
        )
    for names, layer in ((TLS, "SSL"), (SASL, "SASL")):
        used = layer in broker.protocol.split("_")
        for name in names:
            given = bool(getattr(broker, name))
            if given and not used:
                _refuse(
                    f"broker.{name} is set, and broker.protocol is {broker.protocol}, which does "
                    "not use it",
                    f"Give a broker.protocol with {layer} in its name, or leave broker.{name} out.",
                )
            if used and not given and names is SASL:
                _refuse(
                    f"broker.protocol is {broker.protocol}, and broker.{name} is not set",
                    "Set it; or broker.protocol to PLAINTEXT or SSL, if the broker asks no name.",
                )
    if bool(broker.certificate_file) != bool(broker.key_file):
        _refuse(
            "of broker.certificate_file and broker.key_file, one is set and the other is not",
            "A client shows a certificate, and proves by its key that it is its own: set both.",
        )
    _check_files(broker)


def client_options(broker: Broker) -> dict[str, Any]:
    """Tell a client of kafka-python where the broker is, and how to come in."""
    check(broker)
    options: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": broker.protocol,
        "ssl_cafile": broker.ca_file,
        "ssl_certfile": broker.certificate_file,
        "ssl_keyfile": broker.key_file,
        "sasl_mechanism": broker.sasl_mechanism,
        "sasl_plain_username": broker.username,
        "sasl_plain_password": broker.password,
    }
    return {name: value for name, value in options.items() if value}


def spark_options(broker: Broker) -> dict[str, str]:
    """Tell Spark's Kafka source where the broker is, and how to come in."""
    check(broker)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "kafka.security.protocol": broker.protocol,
    }
    if broker.ca_file:
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.certificates"] = _text(broker.ca_file)
    if broker.key_file:
        options["kafka.ssl.keystore.type"] = "PEM"
        options["kafka.ssl.keystore.certificate.chain"] = _text(broker.certificate_file)
        options["kafka.ssl.keystore.key"] = _text(broker.key_file)
    if broker.sasl_mechanism:
        options["kafka.sasl.mechanism"] = broker.sasl_mechanism
        options["kafka.sasl.jaas.config"] = (
            f"{LOGIN_MODULES[broker.sasl_mechanism]} required "
            f"username={_quoted(broker.username)} password={_quoted(broker.password)};"
        )
    return options


def _quoted(value: str) -> str:
    """Write a text as JAAS reads it: a quote or a line's end would end it, a backslash escapes."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " else f"\\{ord(c):03o}" for c in escaped) + '"'


def _check_files(broker: Broker) -> None:
    for key, name, mark in [
        ("broker.ca_file", broker.ca_file, "-----BEGIN CERTIFICATE-----"),
        ("broker.certificate_file", broker.certificate_file, "-----BEGIN CERTIFICATE-----"),
        # What Python and Java both read: Java none as old OpenSSL wrote it ("RSA PRIVATE KEY").
        ("broker.key_file", broker.key_file, "-----BEGIN PRIVATE KEY-----"),
    ]:
        if not name:
            continue
        try:
            held = _text(name)
        except (OSError, UnicodeDecodeError) as error:
            _refuse(f"{key}: {name} cannot be read: {error}", "Name a PEM file that is there.")
        if mark not in held:
            _refuse(
                f"{key}: {name} holds no {mark}",
                "Give it as PEM; a key as `openssl pkcs8 -topk8 -nocrypt` writes it.",
            )
    if not (broker.ca_file or broker.key_file):
        return  # there is nothing to check, and reading the system's certificates takes a while
    try:
        context = ssl.create_default_context(cafile=broker.ca_file or None)
        if broker.key_file:
            context.load_cert_chain(broker.certificate_file, broker.key_file)
    except ssl.SSLError as error:
        _refuse(
            f"the certificates of section broker cannot be used: {error}",
            "Are the files PEM, and is the key that of the certificate?",
        )


def _text(file: str) -> str:
    return Path(file).read_text(encoding="ascii")


def _refuse(what: str, hint: str) -> NoReturn:
    raise ConfigError(what, hint=hint)
