"""Submit: each planned job becomes an accepted generation, once."""

from callsheet.steps import submit as library
from tasks.step import step

submit = step(library.submit)
