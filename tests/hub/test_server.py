"""The local Hub is as strict as the real one: it refuses what that refuses, and never lets a token reach its storage.

Without this, a test of a push would only show that the push and the local Hub agree with each other.
"""

from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from hub.server import READ_TOKEN, STRANGER_TOKEN, TOKEN, LocalHub
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import BadRequestError, HfHubHTTPError, RepositoryNotFoundError


REPO = "tester/model"
CARD = "---\nlicense: mit\ntags: [translation]\n---\n# A model\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A text, a card and a file for the storage."""
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "README.md").write_text(CARD)
    (folder / "sub/config.json").write_text('{"d_model": 16}')
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 4096)
    return folder


@pytest.fixture
def api(hub_in_process: LocalHub) -> HfApi:
    return HfApi()


@pytest.fixture
def hub(hub_in_process: LocalHub) -> LocalHub:
    """The Hub with an empty repository."""
    hub_in_process.add_repository(REPO)
    return hub_in_process


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def uploaded(hub: LocalHub) -> dict[str, bytes]:
    return {path: content for path, content in hub.files(REPO).items() if path != ".gitattributes"}


def push(api: HfApi, folder: Path) -> str:
    return api.upload_folder(repo_id=REPO, folder_path=folder).oid


def test_a_folder_comes_back_byte_by_byte_and_its_large_file_by_the_storage_alone(
    api: HfApi, hub: LocalHub, folder: Path
) -> None:
    push(api, folder)
    assert uploaded(hub) == contents(folder)
    assert contents(Path(snapshot_download(REPO))) == hub.files(REPO)
    size = (folder / "model.safetensors").stat().st_size
    stored = [(request.method, request.status, request.size) for request in hub.requests if request.host == "storage"]
    assert stored == [("PUT", 200, size), ("GET", 200, 0)]
    assert max(request.size for request in hub.requests if request.host == "hub") < size
    assert hub.unknown == []


def test_no_token_reaches_the_storage_or_the_records(api: HfApi, hub: LocalHub, folder: Path) -> None:
    push(api, folder)
    assert {request.host for request in hub.requests if request.authorized} == {"hub"}
    assert TOKEN not in repr(hub.requests)
    address = hub.asked("PUT", "/storage/")[0].path
    signed = f"{hub.storage_url}{address}?signature={hub.signature}"
    assert httpx2.get(signed).status_code == 200
    assert httpx2.get(f"{hub.storage_url}{address}").status_code == 403
    assert httpx2.get(signed, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 400


def test_what_the_server_does_not_know_is_listed(api: HfApi, hub: LocalHub) -> None:
    with pytest.raises(HfHubHTTPError, match="404"):
        api.get_model_tags()
    assert hub.unknown == [("GET", "/api/models-tags-by-type")]


@pytest.mark.parametrize("metadata", ["license: [mit", "model-index:\n- results: [{task: 1}]"])
def test_a_card_that_the_hub_cannot_read_is_refused_before_anything_is_sent(
    metadata: str, api: HfApi, hub: LocalHub, folder: Path
) -> None:
    (folder / "README.md").write_text(f"---\n{metadata}\n---\n")
    with pytest.raises(ValueError, match=r"Invalid metadata in README.md"):
        push(api, folder)
    assert uploaded(hub) == {}
    assert hub.asked("PUT", "/storage/") == []


def test_a_large_file_that_was_not_sent_cannot_be_committed(api: HfApi, hub: LocalHub) -> None:
    line = '{"key": "lfsFile", "value": {"path": "model.safetensors", "oid": "%s", "size": 1}}' % ("0" * 64)
    address = f"{hub.url}/api/models/{REPO}/commit/main"
    response = httpx2.post(address, content=line, headers={"Authorization": f"Bearer {TOKEN}"})
    assert (response.status_code, uploaded(hub)) == (400, {})


@pytest.mark.parametrize("token", [STRANGER_TOKEN, False])
def test_a_private_repository_does_not_exist_for_others(
    token: str | bool, api: HfApi, hub_in_process: LocalHub, folder: Path
) -> None:
    api.create_repo(REPO, private=True)
    push(api, folder)
    assert api.model_info(REPO).private
    assert Path(hf_hub_download(REPO, "README.md")).read_text() == CARD
    other = HfApi(token=token)
    asked: list[Callable[[], object]] = [
        lambda: other.model_info(REPO),
        lambda: other.hf_hub_download(REPO, "model.safetensors"),
        lambda: other.upload_folder(repo_id=REPO, folder_path=folder),
    ]
    for ask in asked:
        with pytest.raises(RepositoryNotFoundError):
            ask()


@pytest.mark.parametrize(("token", "status"), [(STRANGER_TOKEN, "403"), (READ_TOKEN, "403"), ("hf_wrong", "401")])
def test_only_the_owner_writes(token: str, status: str, api: HfApi, hub: LocalHub, folder: Path) -> None:
    other = HfApi(token=token)
    for write in (lambda: push(other, folder), lambda: other.create_repo(REPO)):
        with pytest.raises(HfHubHTTPError, match=status):
            write()
    assert uploaded(hub) == {}


def test_a_failure_meets_only_as_many_requests_as_it_says(api: HfApi, hub: LocalHub) -> None:
    hub.fail("GET", f"/api/models/{REPO}", status=400, times=2)
    for _ in range(2):
        with pytest.raises(BadRequestError):
            api.model_info(REPO)
    assert api.model_info(REPO).id == REPO
    assert [request.status for request in hub.asked("GET", REPO)] == [400, 400, 200]


def test_a_commit_whose_answer_is_lost_is_made(api: HfApi, hub: LocalHub, folder: Path) -> None:
    hub.fail("POST", "/commit/", loses_answer=True)
    with pytest.raises(httpx2.TransportError, match="disconnected without sending a response"):
        push(api, folder)
    assert uploaded(hub) == contents(folder)
