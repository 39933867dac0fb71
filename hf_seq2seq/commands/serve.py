"""The verb `serve`: an HTTP server that translates."""

from importlib import import_module
from typing import Annotated

import typer

from .address import HostOption, bind
from .options import Backend, BackendOption, BatchTokensOption, BeamSizeOption, DeviceOption, DtypeOption


def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Folders of models, or names on the Hub; several ones with their languages, such as en-de=FOLDER.",
            metavar="MODEL...",
        ),
    ],
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port.")] = 5000,
    workers: Annotated[int, typer.Option(min=1, help="Processes that translate. Each loads all models.")] = 1,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="HF_SEQ2SEQ_API_KEY", show_default=False, help="What requests for translations must come with."
        ),
    ] = None,
    char_limit: Annotated[int, typer.Option(min=1, help="The most characters of a request.")] = 100_000,
    batch_limit: Annotated[int, typer.Option(min=1, help="The most texts of a request.")] = 1_000,
    queue_limit: Annotated[
        int, typer.Option(min=1, help="The most lines that wait; requests for more are answered with 429.")
    ] = 10_000,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help='Another site whose pages may ask, such as "https://example.org"; may be repeated.'),
    ] = None,
    beam_size: BeamSizeOption = None,
    batch_tokens: BatchTokensOption = 1024,
    backend: BackendOption = Backend.torch,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
) -> None:
    """Serve translations over HTTP, for clients of LibreTranslate and of Hugging Face.

    Ctrl-C ends it when it has answered what it took. It needs `pip install 'hf-seq2seq[serve]'`.
    """
    _check_libraries()
    listener = bind(host, port)
    import uvicorn

    from hf_seq2seq.serving import Limits, Loading, ModelSpec, Workers, make_app

    specs = [ModelSpec.parse(model) for model in models]
    loading = Loading(backend.value, device, dtype, batch_tokens, beam_size)
    limits = Limits(char_limit, batch_limit, queue_limit, api_key, allow_origin or ())
    with listener, Workers(specs, number=workers, loading=loading) as started:
        config = uvicorn.Config(
            make_app(started, limits), log_level="warning", access_log=False, server_header=False, lifespan="on"
        )
        listener.listen(config.backlog)  # who comes now waits a moment
        typer.echo(f"Serving at http://{host}:{port} (Ctrl-C ends it)")
        uvicorn.Server(config).run([listener])


def _check_libraries() -> None:
    """Raises ImportError if a library of the server is not installed."""
    try:
        for name in ("fastapi_offline", "prometheus_client", "uvicorn"):
            import_module(name)
    except ImportError as error:
        raise ImportError(
            f"The server needs the library {(error.name or 'fastapi').split('.')[0]}, which is not installed: "
            "pip install 'hf-seq2seq[serve]'"
        ) from error
