"""Runs `hf-seq2seq` and Python files for a shell, without the seconds that each takes to import its libraries.

A server imports the package once and forks a process for each command. A script named `hf-seq2seq`, and one named
`python-file`, ask it to: they hand over their arguments, folder, environment and standard streams, and end with the
status of the forked process.
"""

import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


CLIENT = """\
#!{python} -IS
import json, os, socket, sys

request = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({address!r})
    socket.send_fds(connection, [len(request).to_bytes(8)], [0, 1, 2])
    connection.sendall(request)
    sys.exit(int(connection.recv(8) or 1))
"""


@contextmanager
def warm_commands(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Writes both scripts to a folder, where they work as long as the `with` lasts."""
    for name in ("hf-seq2seq", "python-file"):
        (folder / name).write_text(CLIENT.format(python=sys.executable, address=str(folder / "socket")))
        (folder / name).chmod(0o755)
    command = [sys.executable, __file__, str(folder / "socket")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=dict(environment), stdin=pipe, stdout=pipe) as server:  # ends with its input
        assert server.stdout is not None
        server.stdout.readline()  # it listens
        yield


def serve(address: str) -> None:
    """Forks a process for each request, until standard input ends."""
    import hf_seq2seq.inference.translator
    import hf_seq2seq.training.run
    import hf_seq2seq.training.trainer  # noqa: F401

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("listening", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended processes are not waited for
        while listener in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                run(connection)
            connection.close()


def run(connection: socket.socket) -> None:
    """Becomes the command that is asked for; does not return."""
    length, descriptors, _, _ = socket.recv_fds(connection, 8, 3)
    request = connection.recv(int.from_bytes(length), socket.MSG_WAITALL)
    for standard, descriptor in enumerate(descriptors):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    sys.argv, folder, environment = json.loads(request)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep)
    status = 1
    try:
        if Path(sys.argv[0]).name == "hf-seq2seq":
            from hf_seq2seq.commands.main import main

            main()
        else:
            runpy.run_path(str(Path(sys.argv[1]).resolve()), run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(str(status).encode())
        os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1])
