"""The data types that all packages share, in the order in which a batch passes through them.

A job has a price; an attempt at a job becomes a generation; a generation has media, which become stored
files. Then come the records about doubts, the balance, totals and a run at work. They are immutable values:
no I/O and no clock. Money is `Decimal` US dollars everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from callsheet.plain_text import counted, moment_in_words

canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode
"""A value as canonical JSON: sorted keys, no spaces, text as it is."""


def dollars(amount: Decimal) -> str:
    """An amount as text, for people and for JSON: four decimals, or six where four would not be exact."""
    four = amount.quantize(Decimal("0.0001"))
    return str(four if four == amount else amount.quantize(Decimal("0.000001")))


class Record:
    """A result with the fields that `--json` prints, by name too: `dict(result)` is a row of a table."""

    __slots__ = ()

    def as_json(self) -> dict[str, Any]:
        """The JSON object (`as_json`)."""
        return {name: as_json(getattr(self, name)) for name in self.keys()}

    def keys(self) -> Iterable[str]:
        """The names of the fields."""
        return tuple(self.__slots__)

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)


def as_json(value: Any) -> Any:
    """A value as JSON has it: money is a string, a time is ISO 8601, and a record is a JSON object."""
    match value:
        case Decimal():
            return dollars(value)
        case date():
            return value.isoformat()
        case Record():
            return value.as_json()
        case Mapping():
            return {name: as_json(entry) for name, entry in value.items()}
        case list() | tuple():
            return [as_json(entry) for entry in value]
    return value


class ModelType(StrEnum):
    """Image or video (INTERFACE 2.10 `type`). Each type has its own rate window (INTERFACE 8)."""

    IMAGE = "image"
    VIDEO = "video"


class State(StrEnum):
    """The state of a job; `docs/architecture.md, "States of a job"` has what may follow."""

    PLANNED = "planned"
    SUBMITTING = "submitting"
    PENDING = "pending"
    GENERATED = "generated"
    STORED = "stored"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    LOST = "lost"

    @property
    def in_words(self) -> str:
        """For people: `in doubt`."""
        return self.value.replace("_", " ")


CHARGED = "charged"
"""What a person has decided of an attempt that was in doubt: it was paid for, and is lost."""

NOT_CHARGED = "not_charged"
"""What a person has decided of an attempt that was in doubt: it cost nothing, and is free to buy again."""

UNKNOWN_STATUS = "unknown_status"
"""The error code of a pending video of which the service said a status that the interface does not have."""

# Sets of states that mean something: each has its name here, and nobody puts one of them together again.
# Elsewhere states are listed only for an index of the ledger, in the order in which they are shown, or for a
# rule that nothing else goes by.

IN_FLIGHT = (State.SUBMITTING, State.PENDING)
"""The states of jobs that are sent and whose end the service has not said yet; without those in doubt."""

UNDER_WAY = (*IN_FLIGHT, State.GENERATED)
"""The states of jobs that are sent, and that a run has something to do for."""

OPEN = (State.PLANNED, *UNDER_WAY)
"""The states of jobs that a run has something to do for, sent or not."""

ENDED_BADLY = (State.FAILED, State.LOST, State.IN_DOUBT)
"""The states of jobs that have ended without a file, for now at least."""

ENDED = (State.STORED, *ENDED_BADLY)
"""The states of jobs that have ended. Of a video in doubt that has an id, each run asks the service again all
the same (`queries.IS_POLLED`).
"""

UNDECIDED = (*UNDER_WAY, State.IN_DOUBT)
"""The states of jobs that are sent, and of which nobody knows yet whether a file will come."""

PAID = (State.GENERATED, State.STORED, State.LOST)
"""The states of jobs that are paid for: answered, or settled as charged."""

ACCEPTED = (State.PENDING, *PAID)
"""The states of jobs that are bought: paid for, or a video that the service is making."""

ALREADY_BOUGHT = (State.SUBMITTING, *ACCEPTED)
"""The states of jobs that no run sends now: bought, or on the wire. A quote counts them as already bought."""

MAY_COST = (*ALREADY_BOUGHT, State.IN_DOUBT)
"""The states of jobs that have cost money, or may have."""

NOT_BOUGHT = (State.PLANNED, State.FAILED)
"""All states but `MAY_COST`. A job that has failed may have been charged all the same."""

FOR_A_PERSON = (State.IN_DOUBT, State.LOST)
"""The states of jobs that a person must look at: paid for, or perhaps, and without a file."""

COST_UNKNOWN = (*IN_FLIGHT, State.IN_DOUBT)
"""The states of jobs that are sent, and of which nobody knows yet what they cost."""


class ServiceObject(BaseModel):
    """The base of every JSON object of the service. Immutable; ignores fields that it does not know.

    It has the interface's own fields, and the interface may grow (INTERFACE 9).
    """

    model_config = ConfigDict(frozen=True, extra="ignore")


@dataclass(frozen=True, slots=True)
class Price:
    """The exact price of a job: `unit_price` dollars times `quantity` units."""

    billable_unit: str
    unit_price: Decimal
    quantity: int
    currency: str

    @property
    def total(self) -> Decimal:
        """The price of the job, in `currency`."""
        return self.unit_price * self.quantity


@dataclass(frozen=True, slots=True)
class Job:
    """One generation to buy: a row of the plan.

    Attributes:
        key: a hash of the job's content, 64 hex digits.
        row_id: the id of its prompt row, or one made from the row's content.
        sample: the number of the sample of its prompt row, from 1.
        request: the JSON body to send, with `sha256:<hex>` in place of each inlined image's data URL.
        inlined: the place of each inlined image, by the sha256 of its bytes (hex): a path or an `s3://` URL.
        carried: the batch file's other columns, for the manifest.
        price: None where the catalogue has no price and the config allows that.
        request_key: a hash of request and sample, 64 hex digits: equal for jobs that buy the same.
    """

    key: str
    row_id: str
    sample: int
    type: ModelType
    model: str
    request: Mapping[str, Any]
    price: Price | None
    request_key: str
    inlined: Mapping[str, str] = field(default_factory=dict)
    carried: Mapping[str, Any] = field(default_factory=dict)

    @property
    def quoted(self) -> Decimal:
        """The price in dollars; zero where there is no price."""
        return self.price.total if self.price else Decimal(0)


MADE_FROM = "made_from"
"""The carried cell of a job that is made from files of other batches: which these are, or which one it is."""

MADE_FROM_FIELDS = ("batch", "row", "sample", "sha256")

ALSO_MADE_FROM = "also_made_from"
"""The carried column of a job that is made from several: the others, after the first."""


def origins(carried: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The files of other batches that a job is made from, each with `MADE_FROM_FIELDS`, in order."""
    cell = carried.get(MADE_FROM)
    files: list[Any] = cell if isinstance(cell, list) else [cell]
    is_ours = all(isinstance(file, dict) and set(file) == set(MADE_FROM_FIELDS) for file in files)
    return files if is_ours else []


def made_from(carried: Mapping[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The first file of another batch that a job is made from (None: from none), and what it carries besides,
    with `ALSO_MADE_FROM`. A column of a batch file that has the same name is carried as any other.
    """
    files = origins(carried)
    if not files:
        return None, {name: value for name, value in carried.items() if name != MADE_FROM or value}
    others = {name: value for name, value in carried.items() if name != MADE_FROM}
    return files[0], others | ({ALSO_MADE_FROM: files[1:]} if files[1:] else {})


def _or_none(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


OR_NONE = WrapValidator(_or_none)
"""An invalid value becomes None: it only describes what is paid for, and that is still wanted."""


class CostSource(StrEnum):
    """Whose word a cost is: the service's sum, its unit price times its quantity, or only the quote."""

    USAGE = "usage"
    COMPUTED = "computed"
    QUOTED = "quoted"


ESTIMATED = (CostSource.COMPUTED, CostSource.QUOTED)
"""The sources of costs that are not the service's word."""

_MOST = 10**12


def six_decimals(amount: Decimal) -> Decimal:
    """An amount rounded to the six decimals that the ledger and the report keep, half to even.

    The service computes costs in binary floats, so that 3 x 0.1 arrives as 0.30000000000000004.
    """
    return amount.quantize(Decimal("0.000001"), rounding=ROUND_HALF_EVEN)


class Usage(ServiceObject):
    """The cost of a generation in dollars, from the service's answer (INTERFACE 2.5).

    Each part is None where the answer has no valid value. The generation is paid for all the same.
    """

    total_cost: Decimal | None = None
    billable_unit: Annotated[str | None, OR_NONE] = None
    unit_price: Decimal | None = None
    quantity: Decimal | None = None

    def cost(self, quoted: Decimal | None) -> tuple[Decimal | None, CostSource]:
        """What the generation cost in dollars, and whose word that is; None where it has no quote, either.

        A sum of 0 that is only computed cannot be meant: a finished generation has a quantity, and what is
        free has a quote of 0.
        """
        if self.total_cost is not None:
            return self.total_cost, CostSource.USAGE
        if self.unit_price and self.quantity and (product := self.unit_price * self.quantity) < _MOST:
            return six_decimals(product), CostSource.COMPUTED
        return quoted, CostSource.QUOTED

    def charged(self) -> tuple[Decimal, CostSource | None]:
        """What a generation cost that failed: nothing, unless the service says that it charged for it."""
        cost, source = self.cost(None)
        return (cost, source) if cost else (Decimal(0), None)


def _deletion(moment: datetime | None) -> datetime | None:
    """The moment in UTC, which the interface says it is in; None for the year 1, 1970 and 9999: no time."""
    if moment is None or not 2000 <= moment.year < 9999:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _mime_type(value: Any) -> str:
    return value.partition(";")[0].strip().lower() if isinstance(value, str) else ""


_Pixels = Annotated[int | None, Field(ge=0, lt=2**31), OR_NONE]  # the range of the ledger's column
_Measure = Annotated[float | None, Field(ge=0, allow_inf_nan=False), OR_NONE]


class Media(ServiceObject):
    """One file of a generation, at the service (INTERFACE 2.6, 2.7).

    `width` and `height` are in pixels, `duration` in seconds, `fps` in frames per second; each is None where
    the answer has no valid value. `mime_type` is lower case without parameters, empty where the answer has
    none; the bytes say the type of what is stored. `deletes_at` is in UTC; None where the answer has none.
    """

    url: str
    mime_type: Annotated[str, BeforeValidator(_mime_type)] = ""
    deletes_at: Annotated[datetime | None, AfterValidator(_deletion), OR_NONE] = None
    width: _Pixels = None
    height: _Pixels = None
    duration: _Measure = None
    fps: _Measure = None
    has_sound: Annotated[bool | None, OR_NONE] = None


@dataclass(frozen=True, slots=True)
class Generation:
    """A finished generation: its id, its files in order, its cost, and the model that has made it, by the
    answer; None where that names none.
    """

    id: str
    media: tuple[Media, ...]
    usage: Usage
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a job, by this run. `number` counts a job's attempts from 1, over all runs.

    `quoted`: its price by the catalogue, in dollars; None where it has none.
    `in_doubt`: it was accepted, and an earlier run was told that its id is not known, or got no file.
    `said`: the service's words for a pending video in an earlier run, where these were no known status.
    `request_key`: as in the job, for a ledger that does not know the attempt.
    """

    job_key: str
    number: int
    type: ModelType
    row_id: str
    sample: int
    model: str
    quoted: Decimal | None = None
    generation_id: str | None = None
    in_doubt: bool = False
    said: str = ""
    request_key: str = ""


@dataclass(frozen=True, slots=True)
class File:
    """A file that is paid for and not yet stored. `name` is the name in storage that is reserved for it."""

    attempt: Attempt
    index: int
    name: str
    media: Media


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A verified file in storage: its URL (a path for local storage), sha256 (hex), size in bytes, and type.

    The type is that of its bytes, whatever was announced.
    """

    url: str
    sha256: str
    bytes: int
    stored_at: datetime
    mime_type: str


@dataclass(frozen=True, slots=True)
class RejectedFile:
    """A stored file that an automatic check has rejected; `flags`: what the checks found, in words."""

    job_key: str
    row_id: str
    sample: int
    index: int
    url: str
    check: str  # `blank`, `size`, `duplicate`, `delivered` or `command`
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Doubt(Record):
    """An attempt that a person can settle: it was sent, and how it ends is not known.

    Attributes:
        price: its cost in dollars if it was charged; None where the catalogue had no price.
        what: the event that left it in doubt, in words.
        generation_id: the service's id where it accepted it. A video is then no doubt about money: each run
            asks for it again. Of an image there is nothing more to ask. None where no answer has an id.
        state: `in_doubt`, or `pending` for a video that has not ended.
    """

    job_key: str
    attempt: int
    row_id: str
    sample: int
    type: ModelType
    model: str
    price: Decimal | None
    submitted_at: datetime
    what: str
    generation_id: str | None = None
    state: State = State.IN_DOUBT

    @property
    def is_accepted(self) -> bool:
        """Whether it is a video that the service has accepted: it has an id, and every run asks for it."""
        return self.generation_id is not None and self.type is ModelType.VIDEO

    def keys(self) -> Iterable[str]:
        """The names of the fields that `--json` prints."""
        return [name for name in Record.keys(self) if name != "state"]


@dataclass(frozen=True, slots=True)
class OtherRun(Record):
    """Another run of the batch that is at work.

    `run_id` is its id in the ledger; `jobs`: how many it has in hand (reserved, sent, or not stored yet).
    `refused`: the service's words, while it refuses every submission of the run.
    """

    run_id: str
    host: str
    pid: int
    started_at: datetime
    jobs: int
    refused: str = ""

    def line(self) -> str:
        """Where it runs, since when, and with how many jobs, in one line."""
        since = moment_in_words(self.started_at)
        refused = f"; {refuses(self.refused)}" if self.refused else ""
        return f"{self.host}, pid {self.pid}, since {since}: {counted(self.jobs, 'job')} in hand{refused}"


def refuses(words: str) -> str:
    """That the service refuses every submission, in its words. It stands here, because all say it."""
    return f"the service refuses every submission: {words}"


@dataclass(frozen=True, slots=True)
class Totals:
    """A batch so far: jobs by state, and money in dollars.

    `exposure` counts against the budget: spent, reserved, in flight and in doubt. `reserved` is the part of
    it that was not sent yet. `credits` is money that came back: it takes nothing off `spent` or `exposure`.
    """

    states: dict[State, int]
    spent: Decimal
    in_doubt_exposure: Decimal
    exposure: Decimal
    reserved: Decimal
    credits: Decimal = Decimal(0)

    @property
    def net(self) -> Decimal:
        """What the batch has cost, less what came back."""
        return self.spent - self.credits

    @property
    def bought_jobs(self) -> int:
        """Jobs that are bought (`ACCEPTED`)."""
        return sum(self.states.get(state, 0) for state in ACCEPTED)

    @property
    def paid_jobs(self) -> int:
        """Jobs that are paid for: answered, or settled as charged. It gets smaller where a video that was
        settled turns out to be pending.
        """
        return sum(self.states.get(state, 0) for state in PAID)

    @property
    def sent(self) -> Decimal:
        """The part of `exposure` that is spent, in flight or in doubt."""
        return self.exposure - self.reserved

    @property
    def in_flight_exposure(self) -> Decimal:
        """The part of it that is in flight: sent, and not answered."""
        return self.sent - self.spent - self.in_doubt_exposure


@dataclass(frozen=True, slots=True)
class Pacing:
    """Submissions of one model type: those that count now, of the last minute or since the last reset; their
    limit, None while it is not known; and the seconds until the next may leave, where some are left.
    """

    in_window: int
    limit: int | None
    next_in: float = 0.0


@dataclass(frozen=True, slots=True)
class Progress:
    """A batch while a run is under way.

    Attributes:
        jobs: the jobs that count (`Standing.counting`), without those that the run is not for.
        states: how many of them are in each state.
        spent: what the whole batch has cost so far, in dollars.
        in_doubt: what it may have cost besides, in dollars.
        credits: what came back of that, in dollars.
        limit: `budget.limit`.
        videos: those that this run follows, or will follow once they are submitted.
        videos_ended: those of them whose end is known.
        pacing: by model type; a type of which nothing was submitted is absent.
        seconds_left: until every job is submitted, at the account's limits; None while they are not known.
        quoted: the price of the jobs that count, in dollars; None where there is no plan.
        paused: a person holds the buying.
        refused: the service's words, while it refuses every submission.
    """

    jobs: int
    states: Mapping[State, int]
    spent: Decimal
    in_doubt: Decimal = Decimal(0)
    credits: Decimal = Decimal(0)
    limit: Decimal | None = None
    videos: int = 0
    videos_ended: int = 0
    pacing: Mapping[ModelType, Pacing] = field(default_factory=dict)
    seconds_left: float | None = None
    quoted: Decimal | None = None
    paused: bool = False
    refused: str = ""

    @property
    def done(self) -> int:
        """Jobs that have ended."""
        return self._count(*ENDED)

    def _count(self, *states: State) -> int:
        return sum(self.states.get(state, 0) for state in states)

    def steps(self) -> dict[str, tuple[int, int]]:
        """How many jobs each step has done, and of how many; in the order in which a job passes them."""
        not_to_store = self._count(State.FAILED, State.IN_DOUBT)  # submitted, and nothing came of it
        poll = {"poll": (self.videos_ended, self.videos)} if self.videos else {}
        return {
            "submit": (self._count(*ACCEPTED) + not_to_store, self.jobs),
            **poll,
            "download": (self.done - not_to_store, self.jobs - not_to_store),
        }


@dataclass(frozen=True, slots=True)
class Change:
    """A job has come into another state: `pending` (a video was accepted), `generated`, `stored`, `failed`,
    `in_doubt` or `lost`.

    `detail` is the id at the service, the place in storage, or the reason; `cost` is that of a job that is
    generated, in dollars, and None otherwise.
    """

    attempt: Attempt
    state: State
    detail: str
    cost: Decimal | None = None
