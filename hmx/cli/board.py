"""`hmx board`: pages of the runs on this machine, until Ctrl-C."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from hmx.cli.boundary import say
from hmx.cli.runs import Root
from hmx.config.extras import needed
from hmx.config.option import opt
from hmx.errors import HmxError
from hmx.records.paths import DEFAULT_ROOT

_HERE = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class BoardOptions:
    """The address of the board."""

    port: int = opt(8420, "port to listen on; 0 takes a free one", ge=0, le=65535, metavar="PORT", panel="Options")


def board(options: BoardOptions, root: Root = Path(DEFAULT_ROOT)) -> None:
    """Show the runs in a browser, live: state, speed, learning curve and time left.

    Serves pages to this machine only, until Ctrl-C; reads run folders and changes nothing. Choose two runs to see them
    side by side. From another machine: ssh -L 8420:localhost:8420 HOST

    Example: hmx board

    Example: hmx board --root /scratch/runs --port 9000
    """
    with needed("board", "hmx board"):
        import uvicorn

        from hmx.cli.board_pages import application
    if not root.is_dir():
        raise HmxError(
            f"there is no folder {root}", "hmx train --preset gumbel makes runs/; --root names another folder"
        )
    try:
        listener = socket.create_server((_HERE, options.port))  # from now on a browser waits for the first page
    except OSError as problem:
        why = "it is in use" if problem.errno == errno.EADDRINUSE else os.strerror(problem.errno or 0).lower()
        raise HmxError(f"cannot listen on port {options.port}: {why}", "--port 0 takes a free one") from None
    with listener, contextlib.suppress(KeyboardInterrupt):
        say("board", f"http://{_HERE}:{listener.getsockname()[1]}/ shows {root}; Ctrl-C stops it")
        config = uvicorn.Config(application(root), log_level="warning", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])
