"""Poll: each accepted video is asked for until it has ended, or this run's patience has."""

from callsheet.steps import poll as library
from tasks.step import step

poll = step(library.poll)
