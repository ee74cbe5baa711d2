"""The page of the API: its examples run as they stand."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conforming import answering
from serving import KEY, Client

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
CURL = re.compile(r"^curl -s (?:.*\\\n)*.*\n", re.MULTILINE)
PREPARED = "API=$(headrace status --json"


@pytest.fixture
def client(tmp_path: Path, warehouse_url: str) -> Iterator[Client]:
    with answering(tmp_path, warehouse_url) as client:
        yield client


def test_the_examples_with_curl_run_as_they_stand(client: Client) -> None:
    page = PAGE.read_text()
    found = CURL.findall(page[page.index(PREPARED) :])
    assert len(found) > 12
    for example in found:
        done = subprocess.run(
            ["bash", "-c", example.replace("curl -s", "curl -s --fail-with-body", 1)],
            env={**os.environ, "API": f"127.0.0.1:{client.port}", "KEY": KEY},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, (example, done.stdout, done.stderr)
        assert done.stdout, example
