"""The client of huggingface_hub against the local Hub: what it sends arrives, and failures are those of the real one.

Without this, a test of a push would only show that the push and the server agree with each other.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx2
import huggingface_hub
import pytest
from datasets import load_dataset
from hub.server import READ_TOKEN, STRANGER_TOKEN, TOKEN, LocalHub
from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    BadRequestError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from transformers import AutoConfig, MarianConfig


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
    """With an empty repository."""
    hub_in_process.add_repository(REPO)
    return hub_in_process


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def uploaded(hub: LocalHub) -> dict[str, bytes]:
    return {path: content for path, content in hub.files(REPO).items() if path != ".gitattributes"}


def statuses(hub: LocalHub, method: str, path: str) -> list[int]:
    return [request.status for request in hub.asked(method, path)]


def push(api: HfApi, folder: Path) -> str:
    return api.upload_folder(repo_id=REPO, folder_path=folder).oid


# The way that is always taken


def test_a_repository_is_made_once_and_under_the_own_name_only(api: HfApi, hub_in_process: LocalHub) -> None:
    assert api.whoami()["name"] == "tester"
    assert api.create_repo("model").repo_id == REPO
    assert huggingface_hub.create_repo(REPO, exist_ok=True).repo_id == REPO
    assert statuses(hub_in_process, "POST", "/repos/create") == [200, 409]
    assert list(hub_in_process.files(REPO)) == [".gitattributes"]
    with pytest.raises(HfHubHTTPError, match="You already created this model repo"):
        api.create_repo(REPO)
    with pytest.raises(HfHubHTTPError, match=r'403[\s\S]*rights to create a model under the namespace "stranger"'):
        api.create_repo("stranger/model")
    assert list(hub_in_process.repositories) == [("model", REPO)]
    api.delete_repo(REPO)
    assert not api.repo_exists(REPO)


def test_a_folder_comes_back_byte_by_byte(api: HfApi, hub: LocalHub, folder: Path) -> None:
    commit = push(api, folder)
    assert uploaded(hub) == contents(folder)
    files = hub.repositories["model", REPO].branches["main"].files
    assert [path for path, file in files.items() if file.lfs] == ["model.safetensors"]

    downloaded = contents(Path(snapshot_download(REPO)))
    assert downloaded == hub.files(REPO)
    single = Path(hf_hub_download(REPO, "model.safetensors", revision=commit, force_download=True))
    assert single.read_bytes() == (folder / "model.safetensors").read_bytes()
    assert single.parent.name == commit
    assert hub.unknown == []


def test_a_large_file_is_sent_to_and_read_from_the_storage_alone(api: HfApi, hub: LocalHub, folder: Path) -> None:
    push(api, folder)
    snapshot_download(REPO)
    size = (folder / "model.safetensors").stat().st_size
    stored = [request for request in hub.requests if request.host == "storage"]
    assert [(request.method, request.status, request.size) for request in stored] == [
        ("PUT", 200, size),
        ("GET", 200, 0),
    ]
    assert max(request.size for request in hub.requests if request.host == "hub") < size


def test_no_token_reaches_the_storage_or_the_records(api: HfApi, hub: LocalHub, folder: Path) -> None:
    push(api, folder)
    snapshot_download(REPO)
    assert {request.host for request in hub.requests if request.authorized} == {"hub"}
    assert {request.host for request in hub.requests if not request.authorized} >= {"storage"}
    assert TOKEN not in repr(hub.requests)
    address = hub.asked("PUT", "/storage/")[0].path
    signed = f"{hub.storage_url}{address}?signature={hub.signature}"
    assert httpx2.get(signed).status_code == 200
    assert httpx2.get(f"{hub.storage_url}{address}").status_code == 403
    assert httpx2.get(signed, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 400


def test_an_unchanged_folder_sends_nothing_again(api: HfApi, hub: LocalHub, folder: Path) -> None:
    first = push(api, folder)
    assert push(api, folder) == first
    (folder / "README.md").write_text(CARD + "More.\n")
    assert push(api, folder) != first
    assert uploaded(hub) == contents(folder)
    assert statuses(hub, "PUT", "/storage/") == [200]
    assert statuses(hub, "POST", "/commit/") == [200, 200]


def test_a_large_file_can_be_sent_in_parts(api: HfApi, hub: LocalHub, folder: Path) -> None:
    hub.part_size = 300_000
    push(api, folder)
    assert uploaded(hub) == contents(folder)
    assert [request.size for request in hub.asked("PUT", r"/\d$")] == [300_000, 300_000, 300_000, 148_576]


def test_a_text_above_the_limit_is_a_large_file_and_an_empty_one_never(api: HfApi, hub: LocalHub) -> None:
    for path, content in {"long.txt": b"x" * (10 * 1024 * 1024 + 1), "empty.bin": b""}.items():
        api.upload_file(path_or_fileobj=content, path_in_repo=path, repo_id=REPO)
    files = hub.repositories["model", REPO].branches["main"].files
    assert (files["long.txt"].lfs, files["empty.bin"].lfs) == (True, False)


def test_files_and_folders_are_deleted(api: HfApi, hub: LocalHub, folder: Path) -> None:
    push(api, folder)
    api.delete_file("model.safetensors", REPO)
    api.delete_folder("sub", REPO)
    assert list(uploaded(hub)) == ["README.md"]
    with pytest.raises(RemoteEntryNotFoundError, match="A file with this name doesn't exist"):
        api.delete_file("model.safetensors", REPO)


def test_branches_and_tags_keep_what_they_name(api: HfApi, hub: LocalHub, folder: Path) -> None:
    first = push(api, folder)
    api.create_tag(REPO, tag="v1")
    api.create_branch(REPO, branch="tests/next")
    api.create_branch(REPO, branch="tests/next", exist_ok=True)
    (folder / "README.md").write_text(CARD + "Next.\n")
    second = api.upload_folder(repo_id=REPO, folder_path=folder, revision="tests/next").oid
    for revision, commit in {"main": first, "v1": first, first: first, "tests/next": second, second: second}.items():
        path = Path(hf_hub_download(REPO, "README.md", revision=revision))
        assert path.parent.name == commit
        assert path.read_text().endswith("Next.\n") == (commit == second)
    refs = api.list_repo_refs(REPO)
    assert {ref.ref: ref.target_commit for ref in [*refs.branches, *refs.tags]} == {
        "refs/heads/main": first,
        "refs/heads/tests/next": second,
        "refs/tags/v1": first,
    }
    assert [commit.commit_id for commit in api.list_repo_commits(REPO, revision="tests/next")][:2] == [second, first]


def test_what_a_repository_holds_is_listed(api: HfApi, hub: LocalHub, folder: Path) -> None:
    commit = push(api, folder)
    info = api.model_info(REPO, files_metadata=True)
    assert info.card_data is not None
    assert (info.sha, info.private, info.card_data["license"], info.tags) == (commit, False, "mit", ["translation"])
    assert {file.rfilename: file.size for file in info.siblings or []} == {
        path: len(content) for path, content in hub.files(REPO).items()
    }
    assert [file.rfilename for file in info.siblings or [] if file.lfs] == ["model.safetensors"]
    expanded = api.model_info(REPO, expand=["sha"])
    assert (expanded.sha, expanded.siblings, expanded.private) == (commit, None, None)
    top = [".gitattributes", "README.md", "model.safetensors", "sub"]
    assert [entry.path for entry in api.list_repo_tree(REPO)] == top
    assert [entry.path for entry in api.list_repo_tree(REPO, "sub")] == ["sub/config.json"]
    assert api.list_repo_files(REPO) == [*top[:3], "sub/config.json"]
    assert [entry.path for entry in api.get_paths_info(REPO, ["README.md", "no"])] == ["README.md"]


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda api: api.model_info("tester/no"), RepositoryNotFoundError),
        (lambda api: api.model_info("no"), RepositoryNotFoundError),
        (lambda api: api.model_info(REPO, revision="no"), RevisionNotFoundError),
        (lambda api: api.hf_hub_download(REPO, "README.md", revision="no"), RevisionNotFoundError),
        (lambda api: api.hf_hub_download(REPO, "no.txt"), RemoteEntryNotFoundError),
        (lambda api: list(api.list_repo_tree(REPO, "no")), RemoteEntryNotFoundError),
        (lambda api: api.delete_file("README.md", REPO, revision="no"), RevisionNotFoundError),
    ],
)
def test_what_is_not_there_is_told_apart(
    ask: Callable[[HfApi], object], error: type[Exception], api: HfApi, hub: LocalHub
) -> None:
    with pytest.raises(error):
        ask(api)
    assert hub.unknown == []


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


def test_a_commit_on_an_outdated_parent_is_refused(api: HfApi, hub: LocalHub, folder: Path) -> None:
    before = hub.repositories["model", REPO].branches["main"].sha
    push(api, folder)
    with pytest.raises(HfHubHTTPError, match="A commit has happened since"):
        api.delete_file("README.md", REPO, parent_commit=before)
    assert "README.md" in uploaded(hub)


# Who may do what


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
    for write in (lambda: push(other, folder), lambda: other.create_repo(REPO), lambda: other.delete_repo(REPO)):
        with pytest.raises(HfHubHTTPError, match=status):
            write()
    assert uploaded(hub) == {}


def test_a_wrong_token_is_named_as_such(api: HfApi, hub: LocalHub) -> None:
    with pytest.raises(HfHubHTTPError, match="Invalid user token"):
        api.whoami(token="hf_wrong")
    with pytest.raises(HfHubHTTPError, match="Invalid credentials in Authorization header"):
        api.model_info(REPO, token="hf_wrong")


# What goes wrong on the way


def test_an_upload_cut_in_the_middle_is_tried_again(
    api: HfApi, hub: LocalHub, folder: Path, waits: list[float]
) -> None:
    hub.fail("PUT", "/storage/", cut_request=100_000)
    push(api, folder)
    assert uploaded(hub) == contents(folder)
    assert [(request.status, request.size) for request in hub.asked("PUT", "/storage/")] == [
        (0, 100_000),
        (200, 2**20),
    ]
    assert waits == [1]


def test_an_upload_that_is_always_cut_commits_nothing_and_the_next_push_completes_it(
    api: HfApi, hub: LocalHub, folder: Path, waits: list[float]
) -> None:
    hub.fail("PUT", "/storage/", cut_request=100_000, times=None)
    with pytest.raises(RuntimeError, match=r"Error while uploading 'model.safetensors'") as failure:
        push(api, folder)
    assert isinstance(failure.value.__cause__, httpx2.TransportError)
    assert statuses(hub, "PUT", "/storage/") == [0] * 6
    assert uploaded(hub) == {}
    hub.heal()
    push(api, folder)
    assert uploaded(hub) == contents(folder)


@pytest.mark.parametrize("read", [10, 10_000])
def test_a_commit_that_is_cut_is_not_made_and_the_next_push_sends_no_large_file_again(
    read: int, api: HfApi, hub: LocalHub, folder: Path
) -> None:
    hub.fail("POST", "/commit/", cut_request=read)
    with pytest.raises(httpx2.TransportError):
        push(api, folder)
    assert uploaded(hub) == {}
    push(api, folder)
    assert uploaded(hub) == contents(folder)
    assert statuses(hub, "PUT", "/storage/") == [200]


def test_a_commit_whose_answer_is_lost_is_made_and_not_made_twice(api: HfApi, hub: LocalHub, folder: Path) -> None:
    hub.fail("POST", "/commit/", cut_response=0)
    with pytest.raises(httpx2.TransportError, match="disconnected without sending a response"):
        push(api, folder)
    assert uploaded(hub) == contents(folder)
    head = hub.repositories["model", REPO].branches["main"].sha
    assert push(api, folder) == head


@pytest.mark.parametrize(("path", "address"), [("model.safetensors", "/storage/"), ("vocabulary.txt", "/resolve/")])
def test_a_download_cut_in_the_middle_goes_on_where_it_stopped(
    path: str, address: str, hub_in_process: LocalHub, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 50_000)  # what the client keeps is whole chunks
    content = bytes(range(256)) * 1000
    hub_in_process.add_repository(REPO, {path: content})
    hub_in_process.fail("GET", address, cut_response=100_000)
    assert Path(hf_hub_download(REPO, path)).read_bytes() == content
    assert statuses(hub_in_process, "GET", address) == [200, 206]
    assert waits == [1]


@pytest.mark.parametrize("status", [429, 500])
def test_a_passing_failure_is_waited_for(
    status: int, api: HfApi, hub: LocalHub, folder: Path, waits: list[float]
) -> None:
    hub.fail("POST", "/preupload/", status=status, retry_after=7)
    push(api, folder)
    assert uploaded(hub) == contents(folder)
    assert waits == [8]


@pytest.mark.parametrize("path", ["/preupload/", "/objects/batch", "/objects/verify"])
def test_too_many_requests_for_ever_end_in_an_error(
    path: str, api: HfApi, hub: LocalHub, folder: Path, waits: list[float]
) -> None:
    hub.fail("POST", path, status=429, retry_after=0, times=None)
    with pytest.raises((HfHubHTTPError, RuntimeError)) as failure:
        push(api, folder)
    error = failure.value if isinstance(failure.value, HfHubHTTPError) else failure.value.__cause__
    assert isinstance(error, HfHubHTTPError)
    assert error.response.status_code == 429
    assert statuses(hub, "POST", path) == [429] * 6
    assert waits == [1] * 5
    assert uploaded(hub) == {}


def test_a_failure_meets_only_as_many_requests_as_it_says(api: HfApi, hub: LocalHub) -> None:
    hub.fail("GET", f"/api/models/{REPO}", status=400, times=2)
    for _ in range(2):
        with pytest.raises(BadRequestError):
            api.model_info(REPO)
    assert api.model_info(REPO).id == REPO
    assert statuses(hub, "GET", REPO) == [400, 400, 200]


def test_a_slow_answer_ends_in_a_timeout(api: HfApi, hub: LocalHub) -> None:
    hub.fail("GET", f"/api/models/{REPO}", delay=20)
    with pytest.raises(httpx2.ReadTimeout):
        api.model_info(REPO, timeout=0.1)
    assert api.model_info(REPO).id == REPO


# Other processes and libraries


def run(code: str, environment: dict[str, str]) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True, timeout=100
    ).stdout


def test_another_process_is_led_here_with_a_cache_of_its_own(
    hub_server: LocalHub, hub_environment: dict[str, str], folder: Path
) -> None:
    code = f"""
import huggingface_hub as hub
hub.create_repo({REPO!r}, private=True)
hub.upload_folder(repo_id={REPO!r}, folder_path={str(folder)!r})
print(hub.snapshot_download({REPO!r}))
"""
    snapshot = Path(run(code, hub_environment).strip())
    assert contents(snapshot) == hub_server.files(REPO)
    assert uploaded(hub_server) == contents(folder)
    assert snapshot.is_relative_to(hub_environment["HF_HOME"])
    assert hub_server.unknown == []


@pytest.mark.parametrize("private", [True, False])  # two, since transformers keeps the server that it first used
def test_transformers_pushes_and_loads_in_this_process(private: bool, hub_in_process: LocalHub) -> None:
    config = MarianConfig(vocab_size=7, pad_token_id=6)
    config.push_to_hub(REPO, private=private)
    assert hub_in_process.repositories["model", REPO].private == private
    assert AutoConfig.from_pretrained(REPO).vocab_size == 7
    assert hub_in_process.unknown == []


def test_datasets_loads_private_datasets_whole_and_streaming(hub_in_process: LocalHub) -> None:
    for name, text in {"csv": "source,target\na,b\n", "jsonl": '{"source": "a", "target": "b"}\n'}.items():
        content = {f"train.{name}": text.encode()}
        hub_in_process.add_repository(f"tester/{name}", content, repo_type="dataset", private=True)
        for streaming in (False, True):
            rows = load_dataset(f"tester/{name}", split="train", streaming=streaming)
            assert list(rows) == [{"source": "a", "target": "b"}]
    assert hub_in_process.unknown == []
