"""`python -m flows.own_server PORT`: a Prefect server on this machine that ends when its stdin does.

The end of stdin means that the process that has started it is gone, in whichever way: the system closes its
end of the pipe then. So no server is left behind.
"""

from __future__ import annotations

import os
import sys
import threading


def main() -> None:
    """Serves until SIGTERM, or until stdin ends."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()  # first of all: the imports take seconds
    import uvicorn
    from prefect.server.api.server import create_app

    uvicorn.run(create_app, factory=True, lifespan="on", log_level="error", port=int(sys.argv[1]))


def _end_with_stdin() -> None:
    while os.read(0, 1024):  # not sys.stdin, whose lock blocks the end of the interpreter
        pass
    os._exit(0)  # nobody is left who could wait for an orderly end; its database survives a kill


if __name__ == "__main__":
    main()
