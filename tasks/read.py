"""Read: the batch file becomes checked rows."""

from callsheet.steps import batch
from tasks.step import step

read = step(batch.read)
