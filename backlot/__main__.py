"""`python -m backlot`."""

from backlot.cli import app

if __name__ == "__main__":
    app(prog_name="backlot")
