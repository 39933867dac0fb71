"""Errors of writing to the Hub, each as one sentence that says what to do. `loading` has those of reading."""

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]  # as transformers takes it

from hf_seq2seq.error_messages import first_line


RUN_AGAIN = "Run the same command again: what has arrived is not sent twice."


@contextmanager
def hub_errors(repo_id: str, *, way_out: str = RUN_AGAIN) -> Iterator[None]:
    """Turns the errors of the Hub's client, while a repository is written to, into ones that tell a user what to do.

    The messages contain no token and no address, since an address of the Hub's storage is signed.

    Args:
        repo_id: The repository.
        way_out: What a message advises if the Hub or the connection failed, which may pass.

    Raises:
        OSError: If the Hub refuses, fails or cannot be reached.
        ValueError: If the name of the repository or the token is not valid.
    """
    try:
        yield
    except HFValidationError as error:
        raise ValueError(
            f"`repo_id` must be NAME or OWNER/NAME, of letters, digits, `-`, `_` and `.`, but is {repo_id!r} instead."
        ) from error
    except UnicodeEncodeError:
        # Only the token goes into a header; the error holds it.
        raise ValueError(
            "The token must be ASCII, but has other characters. Run `hf auth login` with the token as the Hub shows "
            "it, or set HF_TOKEN."
        ) from None
    except OfflineModeIsEnabled as error:
        raise OSError(
            "The Hub must be reachable, but HF_HUB_OFFLINE says not to use the network. Unset it, and run the same "
            "command again."
        ) from error
    except httpx.HTTPError as error:
        raise OSError(_explain(error, repo_id, way_out)) from error
    except RuntimeError as error:  # what a failed upload of a large file is wrapped in
        raise OSError(_explain(error.__cause__ or error, repo_id, way_out)) from error


def _explain(error: BaseException, repo_id: str, way_out: str) -> str:
    if not isinstance(error, HfHubHTTPError):
        reason = f"{type(error).__name__}: {first_line(error)}"
        return f"The connection to the Hub must last, but broke off ({reason}). {way_out}"
    status = error.response.status_code
    if status == 401:
        return (
            f"Writing to `{repo_id}` needs a token that the Hub accepts, but there is none or it is not valid. Run "
            "`hf auth login` with a token that may write, or set HF_TOKEN."
        )
    if status == 403:
        return (
            f"`{repo_id}` must be a repository that your token may write to, but the Hub refuses it. Name one of your "
            "own, YOU/NAME, or run `hf auth login` with a token that may write."
        )
    if status == 404:
        return f"`{repo_id}` must be a repository that you may see, but the Hub has no such one. Check its name."
    if status == 429:
        return f"The Hub must not be asked so often for now, and refused `{repo_id}` (429). Wait a while. {way_out}"
    if status >= 500:
        return f"The Hub must answer, but failed ({status}) with `{repo_id}`. {way_out}"
    return f"The Hub must accept what is sent to `{repo_id}`, but refuses it ({status}: {error.server_message})."
