"""A small Hub on this machine that answers the HTTP requests with which models are pushed and loaded.

Like the real Hub it has two hosts: the Hub itself, with accounts, repositories and commits, and the storage of large
files, which accepts signed addresses and must never see a token. Everything is in memory. `LocalHub.requests` records
all requests, without tokens, and `LocalHub.fail` makes requests fail.

It serves models and data sets through git LFS, so the client needs `HF_HUB_DISABLE_XET=1`. Anything else that the Hub
can do is answered with 404 and listed in `LocalHub.unknown`.
"""

import base64
import hashlib
import json
import re
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

import yaml
from huggingface_hub.repocard_data import model_index_to_eval_results


TOKEN = "hf_token_of_tester"
READ_TOKEN = "hf_token_of_tester_that_may_only_read"
STRANGER_TOKEN = "hf_token_of_stranger"

LFS_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".onnx", ".parquet", ".arrow", ".zip", ".gz")
LFS_SIZE = 10 * 1024 * 1024
GIT_ATTRIBUTES = "".join(f"*{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LFS_SUFFIXES)
DATE = "2026-01-01T00:00:00.000Z"


@dataclass(frozen=True)
class Account:
    """Whose token it is, and whether it may write."""

    name: str
    may_write: bool = True


@dataclass(frozen=True)
class Request:
    """A request and its answer. A `status` of 0 is a connection that the server cut before it answered."""

    host: str  # "hub" or "storage"
    method: str
    path: str
    status: int
    size: int  # bytes of the body that were read
    authorized: bool  # whether a token came along


@dataclass
class Fault:
    """How the requests that match fail, and how many of them are yet to fail (None: all)."""

    method: str
    path: re.Pattern[str]
    times: int | None
    status: int | None
    retry_after: int | None
    cut_request: int | None
    loses_answer: bool


@dataclass
class Response:
    """What is answered."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class RefusalError(Exception):
    """An answer that refuses, with the codes by which the client tells its errors apart."""

    def __init__(self, status: int, message: str, code: str | None = None, **body: object) -> None:
        super().__init__(message)
        headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
        self.response = answer({"error": message, **body}, status, headers)


class CutError(Exception):
    """The connection is to be cut before the request was read whole."""


@dataclass(frozen=True)
class StoredFile:
    """A file of a commit: in git itself, or as a pointer to the storage."""

    content: bytes
    lfs: bool

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def pointer(self) -> bytes:
        size = len(self.content)
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {size}\n".encode()

    @cached_property
    def blob_id(self) -> str:
        blob = self.pointer if self.lfs else self.content
        return hashlib.sha1(b"blob %d\0%s" % (len(blob), blob)).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.blob_id

    def entry(self, path: str) -> dict[str, Any]:
        """The file as the tree endpoint lists it."""
        entry: dict[str, Any] = {"type": "file", "path": path, "oid": self.blob_id, "size": len(self.content)}
        if self.lfs:
            entry["lfs"] = {"oid": self.sha256, "size": len(self.content), "pointerSize": len(self.pointer)}
        return entry


@dataclass(frozen=True)
class Commit:
    """A state of all files, with the commit before it."""

    title: str
    files: dict[str, StoredFile]
    parent: "Commit | None" = None

    @cached_property
    def sha(self) -> str:
        listing = [(path, file.blob_id) for path, file in sorted(self.files.items())]
        parent = self.parent.sha if self.parent else None
        return hashlib.sha1(json.dumps([self.title, listing, parent]).encode()).hexdigest()

    def history(self) -> Iterator["Commit"]:
        commit: Commit | None = self
        while commit:
            yield commit
            commit = commit.parent

    def entries(self, folder: str) -> list[dict[str, Any]]:
        """The files below a folder, as the tree endpoint lists them."""
        prefix = f"{folder}/" if folder else ""
        return [file.entry(path) for path, file in sorted(self.files.items()) if path.startswith(prefix)]


@dataclass
class Repository:
    """A repository with its branches, and the large files that were sent for it."""

    type: str  # "model" or "dataset"
    id: str
    private: bool
    branches: dict[str, Commit] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)  # by SHA-256

    @property
    def path(self) -> str:
        return f"datasets/{self.id}" if self.type == "dataset" else self.id

    def commit_at(self, revision: str) -> Commit:
        if revision in self.branches:
            return self.branches[revision]
        for commit in (commit for head in self.branches.values() for commit in head.history()):
            if len(revision) >= 7 and commit.sha.startswith(revision):
                return commit
        raise RefusalError(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def commit(self, branch: str, title: str, files: dict[str, StoredFile]) -> Commit:
        self.branches[branch] = Commit(title, files, self.branches.get(branch))
        return self.branches[branch]


class LocalHub:
    """The Hub and its storage, each on its own port, inside a `with` statement."""

    def __init__(self) -> None:
        self.accounts = {
            TOKEN: Account("tester"),
            READ_TOKEN: Account("tester", may_write=False),
            STRANGER_TOKEN: Account("stranger"),
        }
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.requests: list[Request] = []
        self.unknown: list[tuple[str, str]] = []
        self.signature = secrets.token_hex(8)
        self.lock = threading.RLock()
        self._faults: list[Fault] = []
        self._servers = [_Server(self, HubHandler), _Server(self, StorageHandler)]
        self.url, self.storage_url = (f"http://127.0.0.1:{server.server_port}" for server in self._servers)

    def __enter__(self) -> Self:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def fail(
        self,
        method: str,
        path: str,
        *,
        times: int | None = 1,
        status: int | None = None,
        retry_after: int | None = None,
        cut_request: int | None = None,
        loses_answer: bool = False,
    ) -> None:
        """Makes the next requests fail.

        Args:
            method: "GET", "PUT", ...
            path: A regular expression to find in the path. Paths of the storage begin with `/storage/`.
            times: How many requests fail; None for all.
            status: The request is not carried out, and answered with this status.
            retry_after: The seconds in the header `Retry-After` of that answer.
            cut_request: The connection is cut after so many bytes of the body, and the request is not carried out.
            loses_answer: The request is carried out, and the connection cut before the answer.
        """
        with self.lock:
            self._faults.append(Fault(method, re.compile(path), times, status, retry_after, cut_request, loses_answer))

    def heal(self) -> None:
        """Makes all requests succeed again."""
        with self.lock:
            self._faults.clear()

    def next_fault(self, method: str, path: str) -> Fault | None:
        """The fault that this request meets, if any. It is counted."""
        with self.lock:
            for fault in self._faults:
                if fault.method == method and fault.times != 0 and fault.path.search(path):
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault
        return None

    def add_repository(
        self, repo_id: str, files: dict[str, bytes] | None = None, *, repo_type: str = "model", private: bool = False
    ) -> Repository:
        """Adds a repository with files, without HTTP."""
        repository = Repository(repo_type, repo_id, private)
        initial = {".gitattributes": StoredFile(GIT_ATTRIBUTES.encode(), lfs=False)}
        repository.commit("main", "initial commit", initial)
        if files:
            stored = {path: StoredFile(content, lfs=is_lfs(path, len(content))) for path, content in files.items()}
            repository.objects = {file.sha256: file.content for file in stored.values() if file.lfs}
            repository.commit("main", "add files", initial | stored)
        self.repositories[repo_type, repo_id] = repository
        return repository

    def files(self, repo_id: str, revision: str = "main", *, repo_type: str = "model") -> dict[str, bytes]:
        """The files of a repository, by path."""
        commit = self.repositories[repo_type, repo_id].commit_at(revision)
        return {path: file.content for path, file in commit.files.items()}

    def asked(self, method: str, path: str) -> list[Request]:
        """The requests of a method in whose path a regular expression is found."""
        return [request for request in self.requests if request.method == method and re.search(path, request.path)]


def is_lfs(path: str, size: int) -> bool:
    """Whether the Hub keeps a file in its storage."""
    return size > 0 and (path.endswith(LFS_SUFFIXES) or size > LFS_SIZE)


def answer(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(json.dumps(value).encode(), status, {"Content-Type": "application/json", **(headers or {})})


def card_metadata(card: str) -> dict[str, Any]:
    """The metadata of a card: the YAML between its first two `---`."""
    found = re.match(r"---\r?\n(.*?)\r?\n---(\r?\n|$)", card, re.DOTALL)
    metadata = yaml.safe_load(found[1]) if found else {}
    return metadata if isinstance(metadata, dict) else {}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub: LocalHub, handler: type["_Handler"]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.hub = hub

    def handle_error(self, request: object, client_address: object) -> None:
        """Shows errors of this server, and not those of a client that has gone."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    """Reads a request, looks for a fault and a route, records the request and answers."""

    protocol_version = "HTTP/1.1"  # connections are kept, as by the real Hub
    disable_nagle_algorithm = True  # else each answer waits for 40 ms
    server: _Server
    host: str
    routes: tuple[tuple[str, str, str], ...]  # methods, path, name of the function that answers

    def _handle(self) -> None:
        url = urlsplit(self.path)
        self.query = parse_qs(url.query)
        self.body = b""
        fault = self.server.hub.next_fault(self.command, url.path)
        try:
            self._read_body(fault.cut_request if fault else None)
        except CutError:
            self._record(url.path, 0)
            self.close_connection = True
            return
        response = self._failure(fault) or self._route(url.path)
        if fault and fault.loses_answer:
            self._record(url.path, 0)
            self.close_connection = True
            return
        self._record(url.path, response.status)
        self._send(response)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _handle  # noqa: N815

    def _read_body(self, cut: int | None) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.body = self.rfile.read(length if cut is None else min(cut, length))
        if cut is not None or len(self.body) < length:
            raise CutError

    def _failure(self, fault: Fault | None) -> Response | None:
        if fault is None or fault.status is None:
            return None
        failure = RefusalError(fault.status, self.responses[fault.status][0]).response
        if fault.retry_after is not None:
            failure.headers["Retry-After"] = str(fault.retry_after)
        return failure

    def _route(self, path: str) -> Response:
        try:
            if "Transfer-Encoding" in self.headers:
                raise RefusalError(501, "A header you provided implies functionality that is not implemented")
            with self.server.hub.lock:
                self.authenticate()
                for method, pattern, name in self.routes:
                    if self.command in method.split() and (found := re.fullmatch(pattern, path)):
                        parts = {key: unquote(part or "") for key, part in found.groupdict().items()}
                        response: Response = getattr(self, name)(**parts)
                        return response
                self.server.hub.unknown.append((self.command, path))
                raise RefusalError(404, "Sorry, we can't find the page you are looking for.")
        except RefusalError as refusal:
            return refusal.response

    def authenticate(self) -> None:
        """Raises RefusalError if the host does not accept the token."""
        raise NotImplementedError

    def _record(self, path: str, status: int) -> None:
        with self.server.hub.lock:
            self.server.hub.requests.append(
                Request(self.host, self.command, path, status, len(self.body), "Authorization" in self.headers)
            )

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        if "Content-Length" not in response.headers:
            self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def file(self, content: bytes, headers: dict[str, str]) -> Response:
        return Response(content, 200, {"Content-Type": "application/octet-stream", **headers})

    def log_message(self, format: str, *args: object) -> None:
        """Does nothing, since `LocalHub.requests` has all requests."""


class StorageHandler(_Handler):
    """The storage: a signed address gives access to one object."""

    host = "storage"
    routes = (
        ("GET", r"/storage/(?P<kind>\w+)/(?P<repo>.+)/(?P<oid>\w{64})", "download"),
        ("PUT", r"/storage/(?P<kind>\w+)/(?P<repo>.+)/(?P<oid>\w{64})", "upload"),
    )

    def authenticate(self) -> None:
        if "Authorization" in self.headers:
            raise RefusalError(400, "Only one auth mechanism allowed")
        if self.query.get("signature") != [self.server.hub.signature]:
            raise RefusalError(403, "Access Denied")

    def download(self, kind: str, repo: str, oid: str) -> Response:
        return self.file(self.server.hub.repositories[kind, repo].objects[oid], {"ETag": f'"{oid}"'})

    def upload(self, kind: str, repo: str, oid: str) -> Response:
        if hashlib.sha256(self.body).hexdigest() != oid:
            raise RefusalError(400, "The SHA-256 you specified did not match what we received.")
        self.server.hub.repositories[kind, repo].objects[oid] = self.body
        return Response(headers={"ETag": f'"{oid}"'})


REPO = r"/api/(?P<kind>model|dataset)s/(?P<repo>[^/]+/[^/]+)"
GIT = r"/(?P<kind>datasets/)?(?P<repo>[^/]+/[^/]+)\.git/info/lfs/objects"
REVISION = r"(?P<revision>[^/]+)"


class HubHandler(_Handler):
    """The Hub: accounts, repositories, commits, and the addresses of large files."""

    host = "hub"
    routes = (
        ("GET", "/api/whoami-v2", "whoami"),
        ("GET", "/api/agent-harnesses", "agent_harnesses"),
        ("POST", "/api/repos/create", "create_repository"),
        ("POST", "/api/validate-yaml", "validate_card"),
        ("GET", rf"{REPO}(/revision/{REVISION})?", "info"),
        ("GET", rf"{REPO}/tree/{REVISION}(/(?P<folder>.+))?", "tree"),
        ("POST", rf"{REPO}/branch/(?P<branch>[^/]+)", "create_branch"),
        ("POST", rf"{REPO}/preupload/{REVISION}", "preupload"),
        ("POST", rf"{REPO}/commit/{REVISION}", "commit"),
        ("POST", rf"{GIT}/batch", "lfs_batch"),
        ("POST", rf"{GIT}/verify", "lfs_verify"),
        ("GET HEAD", rf"/(?P<kind>datasets/)?(?P<repo>[^/]+(/[^/]+)?)/resolve/{REVISION}/(?P<path>.+)", "resolve"),
        ("GET", r"/api/(?P<kind>model|dataset)s/(?P<repo>[^/]+)(/revision/[^/]+)?", "info"),
    )

    # Who asks, and what for

    def authenticate(self) -> None:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        self.account = self.server.hub.accounts.get(token) if scheme == "Bearer" else None
        if self.account is None and scheme:
            raise RefusalError(401, "Invalid credentials in Authorization header")

    def signed_in(self) -> Account:
        if self.account is None:
            # The client takes a 401 for this error anyway where the address is https; over http it needs the code.
            raise RefusalError(401, "Invalid username or password.", "RepoNotFound")
        return self.account

    def readable(self, kind: str, repo: str) -> Repository:
        """A repository that the account may read; to all others it does not exist."""
        found = self.server.hub.repositories.get(("dataset" if kind.startswith("dataset") else "model", repo))
        if found is None or (found.private and not self._owns(repo)):
            self.signed_in()
            raise RefusalError(404, "Repository not found", "RepoNotFound")
        return found

    def writable(self, kind: str, repo: str) -> Repository:
        found = self.readable(kind, repo)
        if not self.signed_in().may_write or not self._owns(repo):
            raise RefusalError(403, "Authorization error.")
        return found

    def _owns(self, repo: str) -> bool:
        return self.account is not None and repo.startswith(f"{self.account.name}/")

    def json(self) -> Any:
        return json.loads(self.body)

    # Accounts and repositories

    def whoami(self) -> Response:
        account = self.signed_in()
        role = "write" if account.may_write else "read"
        token = {"accessToken": {"displayName": "tests", "role": role}, "type": "access_token"}
        return answer({"type": "user", "id": account.name, "name": account.name, "orgs": [], "auth": token})

    def agent_harnesses(self) -> Response:
        return answer({"standardEnvVars": [], "harnesses": {}})

    def _named_repository(self) -> tuple[str, str]:
        account, asked = self.signed_in(), self.json()
        owner, kind = asked.get("organization") or account.name, asked.get("type", "model")
        if owner != account.name or not account.may_write:
            message = f'You don\'t have the rights to create a {kind} under the namespace "{owner}"'
            raise RefusalError(403, message)
        return kind, f"{owner}/{asked['name']}"

    def create_repository(self) -> Response:
        kind, repo = self._named_repository()
        hub = self.server.hub
        url = f"{hub.url}/{'datasets/' if kind == 'dataset' else ''}{repo}"
        if (kind, repo) in hub.repositories:
            raise RefusalError(409, f"You already created this {kind} repo: {repo}", url=url)
        hub.add_repository(repo, repo_type=kind, private=self.json().get("visibility") == "private")
        return answer({"url": url, "name": repo, "id": repo})

    def validate_card(self) -> Response:
        try:
            metadata = card_metadata(self.json()["content"])
            if "model-index" in metadata:
                model_index_to_eval_results(metadata["model-index"])
        except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
            return answer({"errors": [{"message": f"Invalid metadata: {error!r}"}], "warnings": []}, 400)
        warnings = [] if metadata else [{"message": "empty or missing yaml metadata in repo card"}]
        return answer({"errors": [], "warnings": warnings})

    # What is in a repository

    def info(self, kind: str, repo: str, revision: str = "") -> Response:
        repository = self.readable(kind, repo)
        commit = repository.commit_at(revision or "main")
        card = commit.files.get("README.md")
        metadata = card_metadata(card.content.decode()) if card else {}
        facts: dict[str, Any] = {
            "id": repo,
            "modelId": repo,
            "author": repo.split("/")[0],
            "sha": commit.sha,
            "lastModified": DATE,
            "createdAt": DATE,
            "private": repository.private,
            "gated": False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": metadata.get("tags", []),
            "cardData": metadata,
            **{key: metadata[key] for key in ("library_name", "pipeline_tag", "model-index") if key in metadata},
            "siblings": [{"rfilename": path} for path in sorted(commit.files)],
        }
        return answer(facts)

    def tree(self, kind: str, repo: str, revision: str, folder: str) -> Response:
        entries = self.readable(kind, repo).commit_at(revision).entries(folder)
        if folder and not entries:
            raise RefusalError(404, f"{folder} does not exist on {revision}", "EntryNotFound")
        return answer(entries)

    def resolve(self, kind: str, repo: str, revision: str, path: str) -> Response:
        repository = self.readable(kind, repo)
        commit = repository.commit_at(revision)
        headers = {"X-Repo-Commit": commit.sha}
        if path not in commit.files:
            refusal = RefusalError(404, "Entry not found", "EntryNotFound")
            refusal.response.headers.update(headers)
            raise refusal
        file = commit.files[path]
        if not file.lfs:
            return self.file(file.content, {**headers, "ETag": f'"{file.etag}"'})
        headers |= {"X-Linked-ETag": f'"{file.etag}"', "X-Linked-Size": str(len(file.content))}
        return Response(b"", 302, {**headers, "Location": self._signed(repository, file.sha256)})

    # Changes

    def create_branch(self, kind: str, repo: str, branch: str) -> Response:
        repository = self.writable(kind, repo)
        if branch in repository.branches:
            raise RefusalError(409, f"Reference already exists: {branch}")
        repository.branches[branch] = repository.commit_at(self.json().get("startingPoint", "main"))
        return answer({})

    def preupload(self, kind: str, repo: str, revision: str) -> Response:
        known = self.writable(kind, repo).commit_at(revision).files
        answers = []
        for file in self.json()["files"]:
            path = file["path"]
            mode = "lfs" if is_lfs(path, file["size"]) else "regular"
            oid = {"oid": known[path].etag} if path in known else {}
            answers.append({"path": path, "uploadMode": mode, "shouldIgnore": False, **oid})
        return answer({"files": answers})

    def _signed(self, repository: Repository, oid: str) -> str:
        hub = self.server.hub
        return f"{hub.storage_url}/storage/{repository.type}/{repository.id}/{oid}?signature={hub.signature}"

    def lfs_batch(self, kind: str, repo: str) -> Response:
        repository, hub = self.writable(kind, repo), self.server.hub
        objects = []
        for wanted in self.json()["objects"]:
            oid = wanted["oid"]
            upload = {"href": self._signed(repository, oid), "header": {}}
            verify = {"href": f"{hub.url}/{repository.path}.git/info/lfs/objects/verify"}
            known = oid in repository.objects
            objects.append(wanted if known else {**wanted, "actions": {"upload": upload, "verify": verify}})
        return answer({"transfer": "basic", "objects": objects})

    def lfs_verify(self, kind: str, repo: str) -> Response:
        sent = self.writable(kind, repo).objects.get(self.json()["oid"])
        if sent is None or len(sent) != self.json()["size"]:
            raise RefusalError(422, "The object was not uploaded whole.")
        return Response()

    def commit(self, kind: str, repo: str, revision: str) -> Response:
        repository = self.writable(kind, repo)
        if "create_pr" in self.query:
            raise RefusalError(403, "Pull requests are disabled.")
        if revision not in repository.branches:
            raise RefusalError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        head = repository.branches[revision]
        files, title = dict(head.files), ""
        for line in self.body.splitlines():
            operation = json.loads(line)
            key, value = operation["key"], operation["value"]
            if key == "header":
                title = value["summary"]
                if not head.sha.startswith(value.get("parentCommit", "")):
                    raise RefusalError(412, "A commit has happened since. Please refresh and try again.")
            else:
                OPERATIONS[key](repository, files, value)
        commit = repository.commit(revision, title, files)
        url = f"{self.server.hub.url}/{repository.path}/commit/{commit.sha}"
        return answer({"success": True, "commitOid": commit.sha, "commitUrl": url, "hookOutput": ""})


Files = dict[str, StoredFile]


def _add_file(repository: Repository, files: Files, value: dict[str, Any]) -> None:
    files[value["path"]] = StoredFile(base64.b64decode(value["content"]), lfs=False)


def _add_lfs_file(repository: Repository, files: Files, value: dict[str, Any]) -> None:
    if value["oid"] not in repository.objects:
        raise RefusalError(400, f"LFS pointer pointed to a file that does not exist: {value['path']}")
    files[value["path"]] = StoredFile(repository.objects[value["oid"]], lfs=True)


OPERATIONS: dict[str, Callable[[Repository, Files, dict[str, Any]], None]] = {
    "file": _add_file,
    "lfsFile": _add_lfs_file,
}
