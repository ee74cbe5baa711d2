"""A broker that asks who comes in: a listener for names and passwords, one for certificates."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import trustme
from alone import LOOPBACK, a_broker, data_folder
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

from headrace.config import Broker
from headrace.local import ports
from headrace.local.home import Home
from ingest import topics

PASSWORD = "pass\"word\\ ='1; $é"
USER = "etl"
USERS = {ScramMechanism.SCRAM_SHA_256: "etl_256", ScramMechanism.SCRAM_SHA_512: "etl_512"}
"""Each mechanism knows a name of its own: whoever uses another one does not come in."""

# What stands later in the file wins over what the broker's own settings say.
SETTINGS = """
listeners=CLIENTS://{clients},CONTROLLER://{controller},NAMED://{named},MUTUAL://{mutual}
advertised.listeners=CLIENTS://{clients},NAMED://{named},MUTUAL://{mutual}
listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT,NAMED:SASL_SSL,MUTUAL:SSL
ssl.keystore.type=PEM
ssl.keystore.location={server}
ssl.truststore.type=PEM
ssl.truststore.location={ca}
listener.name.mutual.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.named.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_etl={password};
listener.name.named.scram-sha-256.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.named.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
"""
IN_THE_FILE = r'''"pass\\"word\\\\ ='1; $\u00e9"'''
"""The password as the broker's file has it: escaped for JAAS, and that for a properties file."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """The ways into the broker, each with what it takes."""

    open: Broker
    plain: Broker
    scram_256: Broker
    scram_512: Broker
    mutual: Broker
    stranger: Path
    """A certificate of a CA that it does not know."""


@contextmanager
def a_guarded_broker(folder: Path) -> Iterator[Guarded]:
    loaded = data_folder(folder / "home")
    part = a_broker(loaded)
    at = ports.choose(
        [ports.Wanted(name, LOOPBACK) for name in ("named", "mutual", "broker", "controller")],
        Home(loaded.home).ports,
    )
    ca = trustme.CA()
    files = {name: folder / f"{name}.pem" for name in ("ca", "server", "cert", "key", "stranger")}
    ca.cert_pem.write_to_path(files["ca"])
    trustme.CA().cert_pem.write_to_path(files["stranger"])
    server, client = ca.issue_cert(LOOPBACK), ca.issue_cert("etl@client.example")
    chain = b"".join(blob.bytes() for blob in server.cert_chain_pems)
    files["server"].write_bytes(_pkcs8(server) + chain)
    files["cert"].write_bytes(b"".join(blob.bytes() for blob in client.cert_chain_pems))
    files["key"].write_bytes(_pkcs8(client))
    address = {name: f"{LOOPBACK}:{at[name]}" for name in ("named", "mutual", "controller")}
    settings = SETTINGS.format(**address, **files, clients=part.address, password=IN_THE_FILE)

    def prepare() -> None:
        part.part.prepare()
        with (Home(loaded.home).broker / "server.properties").open("a") as file:
            file.write(settings)

    tls = Broker(bootstrap=address["named"], protocol="SASL_SSL", ca_file=str(files["ca"]))
    named = replace(tls, username=USER, password=PASSWORD)
    ways = Guarded(
        open=Broker(bootstrap=part.address),
        plain=replace(named, sasl_mechanism="PLAIN"),
        scram_256=replace(named, sasl_mechanism="SCRAM-SHA-256", username="etl_256"),
        scram_512=replace(named, sasl_mechanism="SCRAM-SHA-512", username="etl_512"),
        mutual=replace(
            tls,
            bootstrap=address["mutual"],
            protocol="SSL",
            certificate_file=str(files["cert"]),
            key_file=str(files["key"]),
        ),
        stranger=files["stranger"],
    )
    guarded = a_broker(loaded)
    guarded.part = replace(guarded.part, prepare=prepare)
    with guarded, topics.admin(ways.open) as client:
        for mechanism, user in USERS.items():
            client.alter_user_scram_credentials(
                [UserScramCredentialUpsertion(user, mechanism, PASSWORD)]
            )
        yield ways


def _pkcs8(certificate: trustme.LeafCert) -> bytes:
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
