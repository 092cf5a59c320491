"""Download: each file that is paid for is fetched, verified and stored."""

from callsheet.steps import download as library
from tasks.step import step

download = step(library.download)
