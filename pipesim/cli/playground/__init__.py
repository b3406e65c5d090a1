"""`pipesim app`: a local page where schedules, times and limits are changed and everything follows."""

from __future__ import annotations

import logging
import webbrowser
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from threading import Timer
from typing import Annotated, Any

import typer

from pipesim.errors import PipesimError

Host = Annotated[str, typer.Option("--host", help="Address to listen on; others than 127.0.0.1 let others in.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 for any that is free.")]
Open = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]


@dataclass(eq=False)
class NoDash(PipesimError):
    """What the playground is made with is not there."""

    module: str = "dash"

    def __str__(self) -> str:
        return f"the playground needs {self.module}: pip install 'pipesim[app]'"


@dataclass(eq=False)
class CannotListen(PipesimError):
    """Another program has the port, or the address is not this machine's."""

    address: str
    reason: str

    def __str__(self) -> str:
        return f"cannot listen on {self.address}: {self.reason}; try --port 0"


def app(host: Host = "127.0.0.1", port: Port = 8050, open: Open = False) -> None:
    """Play with schedules in the browser: the chart follows every change, the address can be shared.

    Example: pipesim app --open
    """
    server = make_server(host, port)
    address = f"http://{host}:{server.port}/"
    print(f"pipesim is at {address} (Ctrl-C ends it)", flush=True)
    if open:
        Timer(0.5, webbrowser.open, [address]).start()
    server.serve_forever()


def make_server(host: str, port: int) -> Any:
    """A server that has its port and does not answer yet. Raises NoDash, CannotListen."""
    if find_spec("dash") is None:
        raise NoDash
    made = import_module("pipesim.cli.playground.server").make_app()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # not a line a request
    try:
        return import_module("werkzeug.serving").make_server(host, port, made.server, threaded=True)
    except (OSError, SystemExit) as error:  # werkzeug exits where the port is taken
        raise CannotListen(f"{host}:{port}", getattr(error, "strerror", None) or "the port is in use") from None


__all__ = ["app", "make_server"]
