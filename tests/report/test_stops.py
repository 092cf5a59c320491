"""Every early end of the buying has a word of the contract, and the exit code 4."""

from __future__ import annotations

import inspect

import pytest

from callsheet import errors
from callsheet.errors import CallsheetError, Interrupted, Stop, as_stop

REASONS = {
    "budget",
    "balance",
    "key",
    "approval",
    "service",
    "storage",
    "doubt",
    "price",
    "lanes",
    "interrupted",
}


def test_the_stops_have_the_reasons_of_the_contract() -> None:
    classes = (cls for _, cls in inspect.getmembers(errors, inspect.isclass))
    stops = [cls for cls in classes if issubclass(cls, Stop) and cls is not Stop]
    assert {stop.reason for stop in stops} == REASONS
    assert len(stops) == len(REASONS)
    assert all(stop.exit_code == 4 for stop in stops if stop is not Interrupted)


@pytest.mark.parametrize(
    "error, stop",
    [
        (errors.NoLane("x"), errors.NoLane),
        (errors.InvalidApiKey("x", status=401), errors.KeyRefused),
        (errors.QuotaExceeded("x", status=402), errors.BalanceTooLow),
        (errors.NotSent("x"), errors.ServiceDown),
        (errors.MaybeSent("x"), errors.ServiceDown),
        (errors.ServerError("x", status=500), errors.ServiceDown),
        (errors.MediaError("x"), errors.ServiceDown),
        (errors.StorageError("x"), errors.StorageDown),
        (errors.InputError("x"), errors.StorageDown),
    ],
)
def test_an_error_that_ends_the_buying_becomes_a_stop(error: CallsheetError, stop: type[Stop]) -> None:
    error.hint = "do this"
    converted = as_stop(error)
    assert type(converted) is stop
    assert (converted.message, converted.hint) == ("x", "do this")
