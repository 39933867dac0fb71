"""Where verbs that serve something listen."""

import socket
from typing import Annotated

import typer


HostOption = Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 lets other machines in.")]


def bind(host: str, port: int | None) -> socket.socket:
    """Returns a socket with an address of this machine; nobody can connect to it yet.

    Args:
        host: Name or number of the machine.
        port: The port; None for any free one.

    Raises:
        ValueError: If there is no such address, or it is taken.
    """
    way_out = "Name another with `--port`, or leave it out." if port else "Name one with `--host`."
    try:
        family = socket.getaddrinfo(host, port)[0][0]
        listener = socket.socket(family)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port or 0))
        except OSError:
            listener.close()
            raise
    except OSError as error:
        where = f"{host}:{port}" if port else host
        raise ValueError(
            f"`--host` and `--port` must be a free address of this machine, but nothing can listen on {where} "
            f"({error.strerror}). {way_out}"
        ) from error
    return listener
