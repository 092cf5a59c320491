"""The schema of the config file: every setting, its type, its default and its meaning.

Knows nothing of files and of what the settings are used for. The text under a setting is its documentation:
docs/configuration.md is generated from it (`make docs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from callsheet.config.setting_types import (
    BatchName,
    Cell,
    Character,
    Check,
    ColumnName,
    CommandLine,
    Count,
    CountFromZero,
    Dollars,
    HttpAddress,
    KeyPath,
    LocalPath,
    PutArgument,
    ReportUrl,
    RetryFailed,
    Seconds,
    ServiceAddress,
    Share,
    SomeSeconds,
    StorageKey,
    StorageUrl,
    Template,
    Text,
    TextEncoding,
    WrongValue,
)

FileColumn = Literal[
    "id",
    "model",
    "prompt",
    "aspect_ratio",
    "resolution",
    "output_format",
    "duration",
    "sound",
    "images",
    "first_frame",
    "last_frame",
    "reference_image",
    "samples",
]
"""The columns of a batch file that Callsheet reads; every other one is carried into the manifest."""

COLUMNS: tuple[FileColumn, ...] = get_args(FileColumn)

SOURCES = ("path", "kept", "stored")
"""The settings of `input` of which one says where the rows are."""


def _columns_but(*columns: str) -> dict[str, Any]:
    """Which keys a mapping from columns may have, for an editor."""
    return {"propertyNames": {"enum": [name for name in COLUMNS if name not in columns]}}


class Section(BaseModel):
    """A part of the config. It cannot be changed once it is made, and an unknown key is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        protected_namespaces=(),
    )


class Service(Section):
    """The service to buy from."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["base_url"]}, {"required": ["block"]}]}
    )

    block: Text | None = None
    """The CallsheetService block of the Prefect server with the address and the API key. Only runs in Prefect
    read it; then they are not read from anywhere else."""

    base_url: Annotated[ServiceAddress | None, Field(validate_default=True)] = None
    """The service's address without the version: `https://...`, or `http://127.0.0.1:...` for a backlot.
    Required where there is no `service.block`."""

    api_key_env: Text = "CALLSHEET_API_KEY"
    """The environment variable with the API key. The key itself is never written into a config."""

    api_key_block: Text | None = None
    """The Prefect Secret block with the API key. Only runs in Prefect read it; then no variable is read."""

    timeout: SomeSeconds = 300
    """Seconds to wait for the answer to a submission. The service makes an image meanwhile; one that is
    answered later is in doubt."""

    @field_validator("base_url", mode="after")
    @classmethod
    def _here_or_in_the_block(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("block", value) is None:
            raise PydanticCustomError("missing", "is needed where there is no service.block")
        return value


class Guessed(Section):
    """A guess of `callsheet init`."""

    taken: Text
    """What it has written into the config."""

    others: list[Text] = []
    """What else it may be."""


class Input(Section):
    """The batch file, and how its columns become requests."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": [name], "properties": {name: {"type": "string"}}} for name in SOURCES]
        }
    )

    path: LocalPath | None = None
    """A CSV, TSV, text, JSON, JSON Lines, Parquet or Excel file (text may be `.gz` or `.zst`), a folder of
    images, a glob, or an `s3://` URL. One of `path`, `kept` and `stored` is needed."""

    kept: LocalPath | None = None
    """The config of another batch, in the place of `path`: a row for each file that is kept there
    (`callsheet review`)."""

    stored: LocalPath | None = None
    """The config of another batch, in the place of `path`: a row for each file that is stored there and
    not rejected."""

    columns: dict[FileColumn, ColumnName | None] = {}
    """The file's name of a column, where it is not Callsheet's own: `{prompt: text}`; in a file without a
    header its number: `{prompt: 1}`. Of width and height a ratio is made: `{aspect_ratio: [width, height]}`;
    images may be in several: `{reference_image: [image1, image2]}`.
    Null: the file's column of that name is not used, and carried into the manifest."""

    id: Template | None = None
    """An id made from columns: `"{category}-{id}"`. Null: the column `id`."""

    values: dict[FileColumn, dict[Text, Cell | None]] = {}
    """What cells of the file stand for: `{model: {fast: sketch-1}}`. Null: as if the cell were empty."""

    where: dict[Text, Cell | list[Cell]] = {}
    """Which rows are read: those with this value, or one of these, in a column of the file:
    `{status: [new, redo]}`. All others are left out."""

    repeated: Literal["each", "once"] = "each"
    """Of rows that ask for the same: `each` is bought; or only the first of them, `once`."""

    comments: Text | None = None
    """How rows of a text file begin that are left out: `"#"`. Null: every row is read."""

    header: Literal["none"] | None = None
    """`none`: the file has no header; `columns` has the numbers of its columns, from 1. Null: it has one."""

    sheet: Text | None = None
    """The sheet of an Excel workbook; `"*"`: each that has the columns. Null: the first one."""

    hidden: Literal["read", "leave"] | None = None
    """What becomes of an Excel workbook's hidden rows. Null: they are read, and a run asks about them."""

    rows: Text | None = None
    """Where a JSON file has its rows, by the names of lists: `prompts`, or for lists in lists `scenes.shots`;
    the other fields of outer objects are carried as `scenes.location`. Null: the file is the list."""

    split: Literal["lines", "paragraphs", "sections", "named_lines"] = "lines"
    """What is a prompt in a text file without a header: a line; what stands between blank lines; between
    rules (`---`) or below labels, the ids; or, in lines of the form `name | prompt`, what follows the name,
    the id."""

    defaults: Annotated[dict[FileColumn, Cell], Field(json_schema_extra=_columns_but("id"))] = {}
    """Values for columns that the file does not have and for empty cells: `{model: still-1}`."""

    template: Template | None = None
    """A prompt made from columns: `"{adjective} photo of {product}"`. Write a literal brace twice."""

    matrix: Annotated[
        dict[FileColumn, Annotated[list[Cell], Field(min_length=1, json_schema_extra={"uniqueItems": True})]],
        Field(json_schema_extra=_columns_but("id", "samples")),
    ] = {}
    """Buys each row once for every combination of these values: `{aspect_ratio: ["1:1", "16:9"]}`. They
    replace the row's own values."""

    role: Literal["first_frame", "last_frame", "reference_image"] | None = None
    """What the image of a row is, where the rows are images. Null: the first frame of a video whose model
    takes one, and otherwise a reference image."""

    fit: bool = False
    """Whether an image that the service does not take as it is (TIFF, BMP, GIF, AVIF, or more than 10 MiB) is
    sent as a JPEG that it takes. The file itself stays as it is, and so does the job."""

    strict: bool = False
    """Whether one rejected row stops the batch before anything is bought."""

    delimiter: Character | None = None
    """What separates the cells of a text file. Null: found from the header."""

    quote: Character | None = None
    """What encloses cells that contain a delimiter. Null: found from the header."""

    encoding: TextEncoding | None = None
    """The text file's encoding. A byte order mark in the file overrides it. Null: UTF-8."""

    guessed: dict[Text, Guessed] = {}
    """What `callsheet init` has guessed: a quote says it first, and a run asks about each guess once. Remove
    what is right."""

    @property
    def other(self) -> str | None:
        """The config of the batch from whose files this one is made; None where it has a batch file."""
        return self.kept or self.stored

    @property
    def source(self) -> str:
        """Where the rows are, for messages: a path, or the config of another batch."""
        return self.path or self.other or ""

    @property
    def configured(self) -> set[FileColumn]:
        """The columns of which the config says where they are, or what is in them."""
        return {*self.columns, *self.defaults, *self.matrix}

    @property
    def has_ratio_of_files(self) -> bool:
        """Whether the aspect ratio of a row is that of another batch's file, where its model offers it."""
        return self.other is not None and "aspect_ratio" not in self.configured

    @property
    def names(self) -> dict[FileColumn, str | None]:
        """`columns` with one name for each: for several that of the column that is made of them."""
        return {
            column: (" x " if column == "aspect_ratio" else " | ").join(name)
            if isinstance(name, tuple)
            else name
            for column, name in self.columns.items()
        }

    @field_validator("columns", mode="after")
    @classmethod
    def _several_are_a_ratio_or_images(cls, value: dict[str, Any]) -> dict[str, Any]:
        for column, name in value.items():
            if not isinstance(name, tuple) or column == "reference_image":
                continue
            if column != "aspect_ratio":
                problem = "only aspect_ratio and reference_image can be made of several"
                raise ValueError(f"has several columns for {column}; {problem}")
            if len(name) != 2:
                raise ValueError("should be [width, height] for aspect_ratio")
        return value

    @field_validator("defaults", "matrix", mode="after")
    @classmethod
    def _valid_in_a_file(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Checks each value as the same value in a batch file is checked."""
        if "id" in value:
            raise ValueError("cannot set id: each row needs its own")
        if value:
            from callsheet.cells import fixed_values  # polars, which `--help` does not need
        for column, fixed in value.items():
            cells: dict[tuple[str | int, ...], Any] = {(column,): fixed}
            if info.field_name == "matrix":
                cells = {(column, position): cell for position, cell in enumerate(fixed)}
            for place, cell in cells.items():
                try:
                    fixed_values({column: cell})
                except ValueError as error:
                    raise WrongValue(str(error), *place, cell=cell) from None
        return value

    @field_validator("matrix", mode="after")
    @classmethod
    def _each_value_once(cls, value: dict[str, list[Cell]]) -> dict[str, list[Cell]]:
        if "samples" in value:
            raise ValueError("cannot set samples: use a column or a default")
        for column, cells in value.items():
            if any(cell in cells[:position] for position, cell in enumerate(cells)):
                raise ValueError(f"lists a value of {column} twice; to buy the same twice, use samples")
        return value

    @model_validator(mode="after")
    def _one_source(self) -> Input:
        sources = [name for name in SOURCES if getattr(self, name) is not None]
        if len(sources) != 1:
            problem = f"has {' and '.join(sources)}" if sources else "has no rows"
            raise ValueError(f"{problem}; expected one of {', '.join(SOURCES)}")
        if self.template is not None and "prompt" in self.configured:
            raise ValueError("has template and also a column, default or matrix for prompt; expected one")
        if self.id is not None and "id" in self.columns:
            raise ValueError("has id and also a column for id; expected one")
        return self


class Budget(Section):
    """What may be spent, in US dollars."""

    limit: Dollars | None = None
    """The most that the batch may cost: what is spent, in flight and in doubt. Of several runs of the batch
    the one counts whose buying began last. Null: no limit but what is quoted or approved."""

    per_day: Dollars | None = None
    """The most that all batches of the ledger together may cost in one UTC day. Null: no limit."""

    ledger: Dollars | None = None
    """The most that all batches of the ledger together may cost, ever: what is spent, in flight and in doubt.
    Each run goes by the value in its own config. Null: no limit."""

    on_exceed: Literal["stop", "skip", "refuse"] = "stop"
    """`stop` buys in the file's order until a job does not fit; `skip` leaves out jobs that do not fit and
    goes on with cheaper ones; `refuse` buys nothing unless all jobs fit."""

    approve_above: Dollars | None = None
    """A person must approve, before anything is bought, what may come to more than this amount (`at_most` of
    the quote), any job without a price, and any rate that is not the one at which the batch last bought or
    was approved. A yes is to the same plan with no more to pay; what is refused, not answered or has become
    more is asked again. Null: nobody is asked about prices, unless the service charges more than quoted."""

    approve_within: Annotated[Seconds, Field(ge=10)] = 86_400.0
    """Seconds for which a run of a deployment waits in the Prefect UI for a person; then it is cancelled."""

    pilot: Count | None = None
    """How many jobs to buy first, spread over the models and what sets their prices. Then a person is asked
    whether to buy the rest. With `input.matrix` whole rows are bought, each with every value of the matrix:
    these may be more jobs, by less than one row has. Null: no pilot."""

    quote_valid_for: Annotated[Seconds, Field(ge=0)] = 900.0
    """Seconds for which a quote is valid. If nothing was bought by then (say because the answer took long),
    the rates are read again, and a changed rate means a new quote and a new question."""

    repeats: Literal["ask", "buy"] = "ask"
    """`ask`: a person must approve a quote where more than a tenth of the jobs look like what the batch has
    bought, or one differs from that only in what cannot be seen of its prompt; `buy`: nobody is asked."""

    warn: Share | None = 0.8
    """The share of `limit`, `per_day` and `ledger` at which a person is told, once for each amount. In
    Prefect, also of a balance below what the next day's schedules may cost. Null: never."""

    allow_unpriced: bool = False
    """Whether to buy jobs for which the catalogue has no price. What they cost counts once it is charged, so
    no budget stops the first of them; with `approve_above` a person is asked."""


class Limits(Section):
    """The account's limits, or this run's share of them. Null: learned from the service's answers."""

    image_rpm: Count | None = None
    """Image submissions a minute."""

    video_rpm: Count | None = None
    """Video submissions a minute."""

    concurrency: Count | None = None
    """Generations in flight at the same time, images and pending videos together."""

    patience: SomeSeconds = 1800.0
    """Seconds for which submissions may be answered 429 alone, without one that is accepted. Then the run
    ends, with the service's words: the key's quota may be used up. A service that is down when a run begins
    is waited for as long."""


class Poll(Section):
    """How pending videos are polled."""

    interval: Annotated[Seconds, Field(ge=0.1)] = 5.0
    """Seconds between two polls of a video."""

    timeout: SomeSeconds = 300.0
    """Seconds after which a run stops polling a video. It stays pending for the next run or `collect`."""


class Storage(Section):
    """Where the media are stored."""

    url: StorageUrl = "out/media"
    """A folder, or `s3://bucket/prefix`."""

    new: bool = False
    """Whether to store in `url` although what was stored there is gone.
    `callsheet run --new-place` sets it."""

    endpoint_url: HttpAddress | None = None
    """The address of an S3 server other than Amazon's, for every `s3://` URL of the config."""

    put: dict[PutArgument, Text] = {}
    """What every PUT of an object to S3 says besides, for a bucket that demands it: arguments of S3's
    `PutObject`, for example `{ServerSideEncryption: aws:kms, ACL: bucket-owner-full-control}`."""

    sidecar: bool = False
    """Whether to write a JSON file beside each file that is stored from now on, with `.json` after its name:
    the row, prompt, model, request, cost and sha256."""

    provenance: Literal[False, True, "prompt"] = False
    """Whether exported copies say in XMP that a model has made them; `prompt`: with what prompt, too."""

    key: StorageKey = "{batch}/{row_id}-{sample}-{index}.{ext}"
    """A file's name inside `storage.url`. Placeholders: `{batch}`, `{row_id}`, `{sample}`, `{index}`,
    `{ext}`, `{job_key}`, `{model}`, `{generation_id}`, and the batch file's carried columns. An ending such
    as `.jpg` in a cell gives way to the file's own. What Windows takes in no name is percent-encoded on
    every system; a file that has a name already keeps it."""


class LedgerSettings(Section):
    """The record of what was bought."""

    url: LocalPath = "sqlite:///out/ledger.db"
    """The database: `sqlite:///path`, or `postgresql+psycopg://user:password@host/database`."""

    new: bool = False
    """Whether to buy by this ledger even though another one has taken the batch, or may have bought it:
    what this one does not know is bought again. `callsheet run --new-ledger` sets it for one run."""


MOST_JOBS = 100_000
"""Of a contact sheet."""


class Report(Section):
    """The plan, the manifest, the costs, the rejects, the summary, the plots and the contact sheet."""

    url: ReportUrl = "out/{batch}/report"
    """A folder, or `s3://bucket/prefix`, of one batch. Placeholder: `{batch}`."""

    contact_sheet: Annotated[CountFromZero, Field(le=MOST_JOBS)] = 10_000
    """How many jobs the contact sheet shows at most, in the batch file's order; up to 100,000. `callsheet
    review` serves it with 100,000, whatever is said here. A thumbnail
    costs some 15 ms of CPU, in a process of low priority, and 15 kB. Where more than 500 are missing when a
    run ends, it does not wait for them, and `callsheet report` makes them. 0: no contact sheet is made."""

    plots: bool = True
    """Whether to draw the plots, `plots.png`, when a run that took at least 10 s has ended: 2 s of CPU, and
    only where something has changed since they were drawn. `callsheet report` draws them after shorter
    runs."""

    links_valid_for: Annotated[Seconds, Field(gt=0, le=604_800)] | None = None
    """Seconds, up to 604,800 (a week), for which the contact sheet's links to files on S3 work. They are
    signed with this machine's AWS credentials: whoever has the page can open them. Those of temporary
    credentials (a role, a session) stop working when these expire, and the run says so. A run in which
    nothing else has changed makes them anew once half the time is over. Null: no links are signed, and the
    page shows the addresses of files on S3 as text."""


class Review(Section):
    """What follows from looking at what was bought (`callsheet review`)."""

    samples: Count = 3
    """Up to so many samples of a row are bought in all, when rejected ones are bought again. Where
    `input.defaults` asks for several, the default is two more than that."""

    buy_again: bool = False
    """Whether a run buys one more sample of each row of which every stored file is rejected, as
    `callsheet run --again` does."""


class Checks(Section):
    """The automatic checks of each stored file, once. `flag` shows what was found; `reject` also rejects the
    file. One that no decoder can show is flagged as `unreadable` by any of them."""

    blank: Check = "flag"
    """An image of one colour, or a black video."""

    size: Check = "flag"
    """Another aspect ratio than the one asked for, by more than 3 %, or certainly another resolution."""

    duplicate: Check = "flag"
    """Nearly the same image as one of another row that is not rejected. Videos are not compared."""

    delivered: Check = "flag"
    """What else is not as ordered, in the file or by the answer: the model; a video's length, by over half a
    second, or a still picture; sound that is missing, silent or not ordered; an image's format; frames a
    second, by over one from the answer's."""

    command: CommandLine | None = None
    """A program of your own, with its arguments; no shell is used. A run starts it once. It reads a line of
    JSON for each file (`path`, `row`, `sample`, `index`, `prompt`, `model`, and the carried columns in
    `carried`) and answers each within 60 s with a line: `score` (a number), `flags` (a list of texts) and
    `reject` (true or false), each of which may be missing. One that fails is asked no more, and what it has
    not judged is left to the next run."""


class Reconcile(Section):
    """The comparison with the service's own account (`callsheet reconcile`)."""

    threshold: Dollars = Decimal("0.00")
    """The unexplained difference above which a reconciliation fails, in US dollars."""


class BatchSettings(Section):
    """A config without its service: for what only reads the ledger, the storage and the report."""

    batch: BatchName
    """The batch's name. A job is bought once in a batch, however often the batch is run. Up to 100
    letters, digits, `-`, `_` and `.`."""

    service: Service | None = None
    input: Input
    budget: Budget = Budget()
    limits: Limits = Limits()
    poll: Poll = Poll()

    on_doubt: Literal["hold", "retry"] = "hold"
    """What to do with a job that may have been paid for: `hold` leaves it to a person (`callsheet resolve`),
    `retry` buys it again."""

    retry_failed: RetryFailed = False
    """Whether to buy again the jobs that failed in an earlier run: `server_error` those for which the service
    failed, `gateway` those that failed with a code that is not one of the service's own, as of a gateway.
    Neither sends a request again that the service has refused; `all` or `true` does."""

    attempts: Count = 4
    """How often a job is tried that the service answers with 500; and how often in all, over all runs, a job
    is bought that `on_doubt: retry` or `retry_failed` buys again."""

    stop_after: Count = 10
    """Doubts or losses one after another that stop the buying: it pauses, and one more is tried before."""

    storage: Storage = Storage()
    ledger: LedgerSettings = LedgerSettings()
    report: Annotated[Report, Field(validate_default=True)] = Report()
    review: Annotated[Review, Field(validate_default=True)] = Review()
    checks: Checks = Checks()
    reconcile: Reconcile = Reconcile()

    @field_validator("report", mode="after")
    @classmethod
    def _with_the_batch_name(cls, report: Report, info: ValidationInfo) -> Report:
        """Replaces `{batch}`: `report.url` is then the final URL."""
        if "batch" not in info.data:  # the batch's own error is reported
            return report
        return report.model_copy(update={"url": report.url.format(batch=info.data["batch"])})

    @field_validator("review", mode="after")
    @classmethod
    def _with_more_samples(cls, review: Review, info: ValidationInfo) -> Review:
        """Two more samples than each row has at first, unless the config says how many."""
        first = "input" in info.data and info.data["input"].defaults.get("samples")
        if not isinstance(first, int) or "samples" in review.model_fields_set:
            return review
        return review.model_copy(update={"samples": max(review.samples, first + 2)})

    _places: Mapping[KeyPath, str] = PrivateAttr(default_factory=dict)
    _file: Path | None = PrivateAttr(default=None)

    @property
    def file(self) -> Path | None:
        """The config file, from the root; None for settings that were read from none."""
        return self._file

    def where(self, place: KeyPath) -> str:
        """Where a setting was given: 'run.yaml, line 7'."""
        known_places = (place[:end] for end in range(len(place), 0, -1) if place[:end] in self._places)
        return self._places[first] if (first := next(known_places, None)) else "the config"

    def given_at(self, file: Path, places: Mapping[KeyPath, str]) -> Self:
        """The same settings, with their file, and the place of each one for error messages."""
        self._file, self._places = file, places
        return self

    @model_validator(mode="before")
    @classmethod
    def _without_empty_sections(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        sections = {  # for a single value, null is an error as any other wrong value
            name
            for name, field in cls.model_fields.items()
            if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
        }
        return {key: setting for key, setting in value.items() if setting is not None or key not in sections}


class Settings(BatchSettings):
    """A whole config. Every section but `batch`, `service` and `input` may be left out."""

    service: Service
