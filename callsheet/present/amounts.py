"""What is said of amounts, in a few words each, where several sentences about money say the same.

An error says itself which amounts it is about, where it is found.
"""

from __future__ import annotations

from decimal import Decimal

from callsheet.plain_text import counted
from callsheet.records import dollars

NOTHING_BOUGHT = "nothing bought"


def price(quoted: Decimal, at_most: Decimal = Decimal(0), unpriced: int = 0) -> str:
    """What is to pay, with the most that it can come to where that is more: `0.1200 USD, at most 0.2400`.

    `unpriced`: so many jobs without a price come on top.
    """
    more = f", at most {dollars(at_most)}" if at_most > quoted else ""
    others = f", and {counted(unpriced, 'job')} without a price" if unpriced else ""
    return f"{dollars(quoted)} USD{more}{others}"


def jobs_for(jobs: int, quoted: Decimal, at_most: Decimal = Decimal(0), unpriced: int = 0) -> str:
    """What is to buy, and its price: `3 jobs for 0.1200 USD`."""
    return f"{counted(jobs, 'job')} for {price(quoted, at_most, unpriced)}"


def topic(jobs: int, quoted: Decimal) -> str:
    """The same as a name, of a run or a form, and no part of a sentence: `3 jobs, 0.1200 USD`."""
    return f"{counted(jobs, 'job')}, {dollars(quoted)} USD"


def have_no_price(jobs: int, which: str = "") -> str:
    """How many jobs the catalogue has no price for: `3 jobs have no price`; `which`: such as ` to buy`."""
    return f"{counted(jobs, 'job')}{which} {'has' if jobs == 1 else 'have'} no price"


def of_limit(amount: Decimal, limit: Decimal | None) -> str:
    """An amount beside its limit, where there is one: `0.1200 of 5.0000 USD`."""
    return f"{dollars(amount)}{'' if limit is None else f' of {dollars(limit)}'} USD"


def amount_left(amount: Decimal, of: Decimal | None = None) -> str:
    """What is left of an amount: `0.0300 of 1.0000 USD left`."""
    return f"{of_limit(max(Decimal(0), amount), of)} left"


def spent(amount: Decimal, limit: Decimal | None = None) -> str:
    """What was spent, of a limit or in all: `0.1200 USD spent`."""
    return f"{of_limit(amount, limit)} spent"


def used(spent_amount: Decimal, sent: Decimal) -> str:
    """What was spent, and what else was sent: `0.1200 USD spent, 0.0400 in flight or in doubt`."""
    return f"{spent(spent_amount)}, {dollars(sent - spent_amount)} in flight or in doubt"


def in_doubt(exposure: Decimal) -> str:
    """What may have been spent besides: `at most 0.0400 USD in doubt`."""
    return f"{at_most(exposure)} in doubt"


def at_most(exposure: Decimal) -> str:
    """The same where the words before it say that it is in doubt: `at most 0.0400 USD`."""
    return f"at most {dollars(exposure)} USD"


def bought(jobs: int, cost: Decimal) -> str:
    """What was bought, and for how much: `3 bought, 0.1200 USD`."""
    return f"{jobs:,} bought, {dollars(cost)} USD" if jobs else NOTHING_BOUGHT


def above_quote(row: str, cost: Decimal, quoted: Decimal) -> str:
    """What a row was charged in place of its quote: `row a: 0.0115 USD, quoted 0.0015`."""
    return f"{row}: {dollars(cost)} USD, quoted {dollars(quoted)}"


def a_kept_file(cost: Decimal | None) -> str:
    """What a file that is kept has cost, after other words: `, 0.0800 USD a kept file`; empty without one."""
    return "" if cost is None else f", {dollars(cost)} USD a kept file"
