"""docker-compose.yml, Dockerfile, configuration and locks, held against each other.

No container runs here: what can be known without one is checked.
"""

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from test_house import PRODUCT, pins

from headrace import cli, config
from headrace.local import broker, jars

ROOT = Path(__file__).parent.parent
COMPOSE_TEXT = (ROOT / "docker-compose.yml").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE_TEXT)["services"]
INPUTS = {"POSTGRES_PASSWORD", "HEADRACE_API_KEY"}
"""What whoever runs the compose file must give: its only secrets."""


def revision(module: str) -> str:
    """Give the version of a jar that ivy.xml asks for."""
    found = ElementTree.parse(jars.IVY_FILE).find(f".//dependency[@name='{module}']")  # noqa: S314
    assert found is not None
    return found.attrib["rev"]


def base_image() -> str:
    found = re.search(r"^FROM (\S+)$", DOCKERFILE, re.MULTILINE)
    assert found is not None
    return found[1]


def own() -> dict[str, dict[str, Any]]:
    """List the services that run Headrace itself."""
    return {name: service for name, service in SERVICES.items() if "build" in service}


def test_the_services_are_the_parts_and_airflow() -> None:
    assert set(SERVICES) == {"broker", "postgres", "engine", "api", "airflow"}
    assert set(own()) == {"engine", "api"}


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_a_health_check_and_a_restart_policy(service: str) -> None:
    assert SERVICES[service]["healthcheck"]["test"][0] == "CMD"
    assert SERVICES[service]["restart"] == "unless-stopped"


@pytest.mark.parametrize("image", [*(one["image"] for one in SERVICES.values()), base_image()])
def test_an_image_has_an_exact_tag(image: str) -> None:
    _, _, tag = image.partition(":")
    assert re.match(r"\d+\.\d+(\.\d+)?(-|$)", tag), image


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_keeps_its_data_in_a_named_volume(service: str) -> None:
    named = yaml.safe_load(COMPOSE_TEXT)["volumes"]
    sources = {volume.split(":")[0] for volume in SERVICES[service]["volumes"]}
    assert sources & set(named)
    for source in sources - set(named):
        assert (ROOT / source).is_dir(), source


@pytest.mark.parametrize("service", SERVICES)
def test_a_port_is_published_on_loopback_only(service: str) -> None:
    for port in SERVICES[service].get("ports", []):
        assert port.startswith("127.0.0.1:"), port


def test_a_service_waits_until_those_it_needs_are_healthy() -> None:
    waits = {name: set(service.get("depends_on", {})) for name, service in SERVICES.items()}
    assert waits["engine"] == {"broker", "postgres"}
    assert waits["api"] == {"engine"}
    for service in SERVICES.values():
        for condition in service.get("depends_on", {}).values():
            assert condition == {"condition": "service_healthy"}


@pytest.mark.parametrize("service", own())
def test_what_is_set_for_a_part_is_a_configuration_that_loads(service: str) -> None:
    environment = {key: str(value) for key, value in SERVICES[service]["environment"].items()}
    given = dict.fromkeys(INPUTS, "secret")
    filled = {
        key: re.sub(r"\$\{(\w+):\?[^}]*\}", lambda found: given[found[1]], value)
        for key, value in environment.items()
    }
    loaded = config.load({}, environment=filled).config
    assert loaded.broker.bootstrap == "broker:9092"
    assert loaded.warehouse.url == "postgresql://headrace:secret@postgres:5432/headrace"


def test_the_api_listens_where_its_port_is_published() -> None:
    environment = SERVICES["api"]["environment"]
    assert environment["HEADRACE_API_HOST"] == "0.0.0.0"  # noqa: S104 - within its container
    port = environment["HEADRACE_API_PORT"]
    assert SERVICES["api"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f":{port}/readyz" in SERVICES["api"]["healthcheck"]["test"][-1]


def test_the_engine_and_the_api_share_the_core() -> None:
    assert SERVICES["engine"]["volumes"] == SERVICES["api"]["volumes"]
    home = re.search(r"HEADRACE_HOME=(\S+)", DOCKERFILE)
    assert home is not None
    assert f"core:{home[1]}" in SERVICES["engine"]["volumes"]


def test_a_flow_is_where_the_engine_looks_for_it() -> None:
    flow = Path(SERVICES["engine"]["environment"]["HEADRACE_FLOWS"])
    mounts = dict(volume.split(":")[:2] for volume in SERVICES["engine"]["volumes"])
    source = next(source for source, target in mounts.items() if target == str(flow.parent))
    assert (ROOT / source / flow.name).is_file()


def test_every_variable_is_a_configuration_key_or_an_input() -> None:
    used = set(re.findall(r"\bHEADRACE_\w+", COMPOSE_TEXT + DOCKERFILE))
    assert used <= set(config.VARIABLES) | INPUTS


def test_secrets_have_no_default() -> None:
    lines = [line for line in COMPOSE_TEXT.splitlines() if not line.strip().startswith("#")]
    text = "\n".join(lines)
    assert set(re.findall(r"\$\{(\w+):\?[^}]+\}", text)) == INPUTS
    assert len(re.findall(r"\$\{", text)) == len(re.findall(r"\$\{\w+:\?", text))
    for line in lines:
        key, _, value = line.strip().partition(": ")
        if re.search(r"PASSWORD|SECRET|API_KEY|TOKEN", key):
            assert value.startswith("${"), line


@pytest.mark.parametrize("service", own())
def test_a_command_exists(service: str) -> None:
    for command in (SERVICES[service]["command"], SERVICES[service]["healthcheck"]["test"][1:]):
        program, *arguments = command
        assert program in ("headrace", "python")
        if program == "headrace":
            cli.parser().parse_args(arguments)
        else:
            compile(arguments[-1], "healthcheck", "exec")


def test_the_commands_of_the_image_exist() -> None:
    commands = re.findall(r"^RUN (headrace .+)$", DOCKERFILE, re.MULTILINE)
    assert commands
    for command in commands:
        cli.parser().parse_args(shlex.split(command)[1:])


def test_the_broker_is_of_the_version_and_the_settings_of_the_local_one() -> None:
    service = SERVICES["broker"]
    assert service["image"] == f"apache/kafka:{revision('kafka_2.13')}"
    settings = broker.SETTINGS.replace("{message_bytes_max}", str(broker.MESSAGE_BYTES_MAX))
    local = dict(line.split("=", 1) for line in settings.splitlines())
    of_the_network = ("listener", "advertised", "controller", "log.dirs")
    for variable, value in service["environment"].items():
        key = variable.removeprefix("KAFKA_").lower().replace("_", ".")
        if not any(word in key for word in of_the_network):
            assert str(value) == local[key], key


def test_postgres_is_of_the_major_version_of_the_local_one() -> None:
    local = (ROOT / "headrace" / "local" / "postgres.py").read_text()
    major = SERVICES["postgres"]["image"].removeprefix("postgres:").split(".")[0]
    assert f'"pginstall{major}"' in local


def test_airflow_is_the_locked_one() -> None:
    (locked,) = pins("airflow")["apache-airflow"]
    assert SERVICES["airflow"]["image"].startswith(f"apache/airflow:{locked}-python3.")


def test_airflow_finds_the_api_and_the_package_of_the_dags() -> None:
    environment = SERVICES["airflow"]["environment"]
    connection = json.loads(environment["AIRFLOW_CONN_HEADRACE_DEFAULT"])
    assert connection["host"] in own()
    api = SERVICES["api"]["environment"]
    assert connection["port"] == api["HEADRACE_API_PORT"]
    assert connection["password"] == api["HEADRACE_API_KEY"]
    folder = environment["PYTHONPATH"]
    assert f"./dags:{folder}:ro" in SERVICES["airflow"]["volumes"]
    assert (ROOT / "dags" / "headrace_airflow" / "__init__.py").is_file()


def test_sparks_connector_is_of_sparks_version() -> None:
    assert pins("core")["pyspark"] == {revision("spark-sql-kafka-0-10_2.13")}


def test_python_in_the_image_is_one_that_the_project_takes() -> None:
    version = re.match(r"python:(\d+)\.(\d+)\.", base_image())
    least = re.fullmatch(r">=(\d+)\.(\d+)", PROJECT["requires-python"])
    assert version is not None
    assert least is not None
    assert tuple(map(int, version.groups())) >= tuple(map(int, least.groups()))


def test_the_image_has_the_version_of_the_project() -> None:
    for service in own().values():
        assert service["image"] == f"{PROJECT['name']}:{PROJECT['version']}"


def copied() -> list[str]:
    lines = re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def test_the_image_has_every_package_and_every_file_that_it_copies() -> None:
    assert set(PRODUCT) | {"bench"} <= set(copied())
    for source in copied():
        assert (ROOT / source).exists(), source


def test_what_the_image_copies_is_not_ignored() -> None:
    admitted = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    for source in copied():
        assert source in admitted or f"requirements/*{Path(source).suffix}" in admitted, source
