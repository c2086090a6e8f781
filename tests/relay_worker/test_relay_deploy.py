"""The files to deploy a relay with: every setting in them exists, and what they name is there."""

import re
from pathlib import Path

import pytest

from relay_worker.settings import NAMES

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "relay_worker" / "deploy"


def test_every_setting_of_a_deployment_exists_and_every_file_is_documented():
    pages = "".join(one.read_text("utf-8") for one in (ROOT / "docs" / "how-to").glob("*relay*.md"))
    for path in DEPLOY.iterdir():
        named = re.findall(r"CRYSTAL_RELAY_([A-Z_]+)", path.read_text("utf-8"))
        assert {name.lower().removesuffix("_file") for name in named} <= {*NAMES}, path.name
        assert path.name == "Dockerfile" or path.name in pages, path.name


def test_two_relays_of_compose_share_one_database_and_a_proxy_asks_both():
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((DEPLOY / "compose.postgres.yaml").read_text("utf-8"))["services"]
    assert services["relay-a"] == services["relay-b"]
    assert all(name in services["caddy"]["command"] for name in ("relay-a:8600", "relay-b:8600"))
    kinds = [one["kind"] for one in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8"))]
    assert kinds == ["Deployment", "Service", "PodDisruptionBudget"]
