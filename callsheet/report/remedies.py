"""What a person can do about jobs in a state: a sentence each, which begins with the command.

The pages say it of a whole batch (`present`), the contact sheet of each job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from callsheet.errors import SERVICE_CODES
from callsheet.records import NOT_CHARGED, State

NO_DEPLOYMENTS: Mapping[str, str] = MappingProxyType({})
_COLLECT = ("collect", "fetches the pending media, and buys nothing.")
_REMEDIES = {  # the command, and what it does
    State.IN_DOUBT: ("resolve", "shows the jobs in doubt with the evidence, and settles them."),
    State.LOST: ("show", "ROW tells what was tried; with another id its row is bought again."),
    State.PENDING: _COLLECT,
    State.GENERATED: _COLLECT,
    State.FAILED: ("failed", "--csv prints the failed rows, to correct and run again."),
}


def remedies(
    state: State,
    codes: Iterable[str] = (),
    config: str = "CONFIG",
    deployments: Mapping[str, str] = NO_DEPLOYMENTS,
) -> list[str]:
    """What to do about jobs in a state; empty where nothing is.

    Args:
        codes: those of the jobs, where they have failed.
        config: as it is typed in a command.
        deployments: the names of those whose runs do what a command does, by the command: `resolve`.
    """
    first = []
    if state in _REMEDIES:
        name, does = _REMEDIES[state]
        first = [f"{command(name, config, deployments)} {does}"]
    return [*first, *retries(codes, config, deployments)]


def retries(codes: Iterable[str], config: str, deployments: Mapping[str, str] = NO_DEPLOYMENTS) -> list[str]:
    """How to buy failed jobs again, by their codes; nothing for refused prompts."""
    all_codes, kinds, run = {*codes}, set[str](), command("run", config, deployments)
    again = [f"{run} buys again what was settled as not charged."] if NOT_CHARGED in all_codes else []
    for code in all_codes - {NOT_CHARGED}:
        if code == "server_error" or code.startswith("http_5"):
            kinds.add("server_error")
        elif code not in SERVICE_CODES:
            kinds.add("gateway")
    option = "with the override" if "run" in deployments else "--set"
    beginning = f"{run} {option} retry_failed="
    no_fault = (f"{beginning}{kind} buys again what was no fault of the prompt." for kind in sorted(kinds))
    return [*again, *no_fault]


def command(name: str, config: str, deployments: Mapping[str, str] = NO_DEPLOYMENTS) -> str:
    """A command, or the deployment whose runs do the same, as the beginning of a sentence."""
    if name in deployments:
        return f"A run of the deployment {deployments[name]}"
    return f"callsheet {name} {config}"
