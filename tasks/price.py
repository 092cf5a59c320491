"""Price: checked rows and the live catalogue become a plan, frozen, with an exact price for every job."""

from callsheet.pricing.plan import price_batch
from tasks.step import step

price = step(price_batch, "price")
