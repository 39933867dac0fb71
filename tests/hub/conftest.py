"""A Hub on this machine for each test, for other processes and for this one."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from hub.server import TOKEN, LocalHub
from huggingface_hub import constants, file_download, hf_api
from huggingface_hub.utils import _http


SETTINGS = ("HF_", "HUGGINGFACE_", "TRANSFORMERS_")


def is_foreign(name: str) -> bool:
    """Whether a variable of the environment would lead a client elsewhere."""
    return name.lower().endswith("_proxy") or name.startswith(SETTINGS)


def client_environment(hub: LocalHub, hf_home: Path) -> dict[str, str]:
    """Returns the environment of a process that uses this Hub, signed in, with its cache in a folder."""
    kept = {name: value for name, value in os.environ.items() if not is_foreign(name)}
    return kept | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(hf_home),
        "HF_TOKEN": TOKEN,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
    }


@pytest.fixture
def hub_server() -> Iterator[LocalHub]:
    with LocalHub() as hub:
        yield hub


@pytest.fixture
def hub_environment(hub_server: LocalHub, tmp_path: Path) -> dict[str, str]:
    """The environment of a process that uses the local Hub, signed in, with nothing in its cache."""
    return client_environment(hub_server, tmp_path / "hf_home")


@pytest.fixture
def hub_in_process(
    hub_server: LocalHub, hub_environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LocalHub]:
    """The same in this process, where huggingface_hub, transformers and datasets read the environment when imported.

    What code that travels with a model keeps from its import is not changed: use a process for it.
    """
    import datasets
    from transformers.utils import hub as transformers_hub

    for name in filter(is_foreign, list(os.environ)):
        monkeypatch.delenv(name)
    for name, value in hub_environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(constants, "ENDPOINT", hub_server.url)
    template = hub_server.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf_home" / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "hf_home" / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    # `huggingface_hub.create_repo` and its like are methods of this one, which has read the endpoint already.
    monkeypatch.setattr(hf_api.api, "endpoint", hub_server.url)
    monkeypatch.setattr(transformers_hub, "_hf_api", None)
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", hub_server.url)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    huggingface_hub.close_session()
    yield hub_server
    huggingface_hub.close_session()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the client in this process waits before it tries again: noted, and not waited."""
    noted: list[float] = []
    clock = SimpleNamespace(sleep=noted.append)
    monkeypatch.setattr(_http, "time", clock)
    monkeypatch.setattr(file_download, "time", clock)
    return noted
