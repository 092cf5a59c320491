"""`init`, `up`, `models` and `balance`: how a person begins.

`init` writes a first batch for the account's own catalogue, or a config for a batch file that is there; it
never writes over a file. `init --project` writes a folder with Prefect flows and tasks, which their owner
may change. The files are those of this repository. In an installation they are inside the package, because
people who use Prefect have folders `flows` and `tasks` of their own, which a package of these names would
hide.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from callsheet.cli.output import (
    SKILL,
    Json,
    Sets,
    T,
    ask_service,
    client_of_environment,
    load_settings,
    open_client,
    out,
    path_at_home,
    print_json,
)
from callsheet.errors import ConfigError, InputError
from callsheet.files import disk_errors
from callsheet.first_look.config_text import (
    batch_name,
    steps_of_production,
    text_of_example,
    texts_of_guess,
)
from callsheet.plain_text import cut
from callsheet.present.amounts import of_limit
from callsheet.present.console import print_line, print_page, safe
from callsheet.present.page import Facts, Line, Listed, Table, Tone
from callsheet.records import dollars

if TYPE_CHECKING:
    from callsheet.first_look.guess import Guess
    from callsheet.first_look.starter import Starter
    from callsheet.service.client import Client
    from callsheet.service.models import Catalogue

_FIRST = 3  # requests
_NO_YAML = "A YAML file is a config; prompts are read from CSV, Excel, JSON, Parquet and text files."
_ANOTHER = "Name another folder or config: callsheet init NAME.yaml"


_Path = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        parser=path_at_home,
        help="Where to write: a folder (without it, the one here) or the name of the config (.yaml). "
        "Or a batch file that is there, or a folder or a glob of images: a config is made for it.",
        show_default=False,
    ),
]
_NewConfig = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG",
        parser=path_at_home,
        help="For a batch file: the name of the config. Without it: the file's name with .yaml.",
        show_default=False,
    ),
]
_Project = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        parser=path_at_home,
        help="Write a Prefect project instead: flows/, tasks/, configs/, prefect.yaml, yours to change.",
        show_default=False,
    ),
]
_Prompt = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="The column of the prompts, or 'A photo of {COLUMN}'; of images the prompt for all.",
    ),
]


def init(
    path: _Path = Path(),
    config: _NewConfig = None,
    project: _Project = None,
    *,
    prompt: _Prompt = None,
    media: Annotated[
        Literal["images", "videos"] | None, typer.Option(help="What is to be made of the prompts.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="The model for all rows.")] = None,
    images: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The columns of images that are sent, or none.")
    ] = None,
    sheet: Annotated[str | None, typer.Option(metavar="NAME", help="The sheet of a workbook.")] = None,
    rows: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="The list of rows of a JSON file: prompts, scenes.shots."),
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(metavar="NAME", help="The encoding of a text file: cp1252.")
    ] = None,
    production: Annotated[
        bool, typer.Option("--production", help="Two configs: stills, and films of those that you keep.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what each column holds and is taken for; write nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Write a commented config and a small CSV, with models of your account's own catalogue.

    For a batch file or images that are there: the config that reads them. What the columns do not say for
    certain is asked on a terminal, and elsewhere guessed: a quote then says it first, and a run asks once.
    Each question has an option, which answers it; --explain says what each column is taken for, and why.

    The prices are those of the catalogue, and nothing is bought. Files that exist are left as they are.

    callsheet init shots.csv --prompt prompt_en --media videos
    """
    options = {"prompt": prompt, "media": "both" if production else media, "model": model, "images": images}
    options |= {"sheet": sheet, "rows": rows, "encoding": encoding}
    answers = {name: value for name, value in options.items() if value is not None}
    if project is not None:
        if answers or path != Path():
            raise ConfigError(
                "--project is for a Prefect project alone", hint="Call init for a batch file then."
            )
        _init_project(project, json)
        return
    no_config = path.suffix.lower() not in ("", ".yaml", ".yml")
    with disk_errors(path, "the name", "read"):
        is_file, is_folder = path.is_file(), path.is_dir()
    if _names_images(path) or (no_config and is_file):
        if explain:
            _explain(path, answers, json)
        else:
            _init_file(path, config or _config_for(path), answers, json)
        return
    from callsheet.batches.formats import is_batch_file

    if config is not None or (no_config and not is_folder and is_batch_file(path.name)):
        hint = f"It was looked for in {path.absolute().parent}."
        raise InputError(f"{path}: there is no such batch file", hint=hint)
    if answers:
        option = "--production" if production else f"--{next(iter(answers))}"
        raise ConfigError(f"{option} is about a batch file, and none is named", hint="Name it first.")
    _init_example(path, json)


def _init_project(folder: Path, json: bool) -> None:
    make_project(folder)
    if json:
        print_json({"project": str(folder)})
        return
    start = Line(f"cd {shlex.quote(str(folder))} && callsheet up --backlot", indent=2)
    print_page(out, [Line(f"A Prefect project is in {folder}. Next:"), start])


def _names_images(path: Path) -> bool:
    """Whether a config is made for images: a folder that has some and no config yet, a glob, or one image."""
    from callsheet.batches.formats import is_glob, is_image

    if path.is_dir():
        is_new = path != Path() and not (path / "batch.yaml").exists()
        return is_new and any(is_image(file.name) for file in path.rglob("*"))
    return is_image(path.name) and (path.is_file() or is_glob(str(path)))


def _config_for(path: Path) -> Path:
    """The name of the config for a batch file: the file's; for images the folder's, beside it."""
    from callsheet.batches.formats import is_image

    if path.is_file() and not is_image(path.name):
        return path.with_suffix(".yaml")
    folder = path if path.is_dir() else path.parent
    while "*" in str(folder) or "?" in str(folder) or "[" in folder.name:
        folder = folder.parent
    return folder.parent / f"{folder.name or 'images'}.yaml"


def _init_example(path: Path, json: bool) -> None:
    """Writes a config and a batch file of a few rows."""
    is_config = path.suffix.lower() in (".yaml", ".yml")
    config, prompts = (
        (path, path.with_suffix(".csv")) if is_config else (path / "batch.yaml", path / "prompts.csv")
    )
    check_free(config, prompts, hint=f"{_ANOTHER}. {_NO_YAML}" if is_config else _ANOTHER)
    catalogue = _catalogue()
    from callsheet.first_look.starter import starter  # polars, which the first checks do not need

    example = starter(catalogue)
    batch = batch_name(config.stem if is_config else path.resolve().name)
    text = text_of_example(config, batch, prompts, example.quoted)
    _write({config: text, prompts: example.as_csv()})
    models = list(dict.fromkeys(row["model"] for row in example.rows if row["model"]))
    if json:
        print_json(
            {"config": str(config), "prompts": str(prompts), "batch": batch, "rows": len(example.rows)}
            | {"models": models, "quoted": dollars(example.quoted), "currency": "USD"}
        )
    else:
        _show(config, prompts, example, models)


def _init_file(path: Path, config: Path, answers: dict[str, str], json: bool) -> None:
    """Writes the config for a batch file, with what a person answers where one is there."""
    if config.suffix not in (".yaml", ".yml"):
        raise ConfigError(
            f"{config}: the name of a config ends in .yaml", hint=f"Name it {config.stem}.yaml."
        )
    check_free(config, hint=f"Name another config: callsheet init {shlex.quote(str(path))} NAME.yaml")
    catalogue = _catalogue()
    from callsheet.cli.dialog import ask
    from callsheet.config.settings import LedgerSettings
    from callsheet.first_look.guess import guess
    from callsheet.ledger.databases import exists

    def guess_with(said: Mapping[str, str]) -> Guess:
        return guess(str(path), catalogue, said)

    is_asked = not json and sys.stdin.isatty() and sys.stdout.isatty()
    guessed = ask(guess_with, answers) if is_asked else guess_with(answers)
    configs = [config]
    if guessed.films:
        configs.append(config.with_stem(f"{config.stem}-films"))
        check_free(configs[1], hint=_ANOTHER)
    _write(texts_of_guess(path, configs, guessed, has_ledger=exists(LedgerSettings().url)))
    if json:
        fields = {"config": str(config), "batch": batch_name(config.stem), "rows": guessed.rows}
        fields |= {"columns": guessed.input.get("columns", {})}
        fields |= {"model": guessed.taken and guessed.taken.model, "guessed": guessed.guesses()}
        print_json(fields | {"not_used": dict(guessed.not_used), "to_buy": guessed.jobs.height})
    else:
        _show_guess(configs, guessed, is_given="model" in answers)
    if guessed.without_jobs:
        raise typer.Exit(2)


def _explain(path: Path, answers: dict[str, str], json: bool) -> None:
    """Prints what each column holds, what it is taken for, and why."""
    catalogue = _catalogue()
    from callsheet.first_look.guess import guess
    from callsheet.present import proposed

    guessed = guess(str(path), catalogue, answers)
    if json:
        print_json({"columns": [asdict(column) for column in guessed.columns], "guessed": guessed.guesses()})
        return
    lines = [
        {"column": column.name, "holds": column.holds, "for example": cut(column.example, 30)}
        | {"taken for": column.taken_for or "nothing; carried", "why": column.why}
        for column in guessed.columns
    ]
    reasons = [Line(f"{name} {reason}") for name, reason in guessed.not_used.items()]
    print_page(
        out, [Table(lines, tuple(lines[0]) if lines else ()), *reasons, Facts(proposed.doubts(guessed))]
    )


def _catalogue() -> Catalogue:
    hint = "Set it to the service's address. To try it without an account: callsheet backlot"
    return ask_service(client_of_environment(hint), lambda client: client.models())


def _write(texts: Mapping[Path, str]) -> None:
    """Writes all of these files, or none; and beside the first, a config, the schema for an editor."""
    from callsheet.config.schema import write_schema

    written: list[Path] = []
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8", newline="") as file:
                written.append(path)
                file.write(text)
        write_schema(next(iter(texts)).parent)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        name = error.filename or next(iter(texts))
        message = f"{name}: cannot be written: {error.strerror}; nothing was written"
        raise ConfigError(message, hint=_ANOTHER) from None


def _show(config: Path, prompts: Path, example: Starter, models: list[str]) -> None:
    from callsheet.present import proposed

    facts = proposed.facts_of_starter(example, models)
    _show_written([config], [*facts, ("Prompts", f"{prompts}: put your own into it")])


def _show_guess(configs: list[Path], guess: Guess, *, is_given: bool) -> None:
    """Prints the first requests, what was written, what is in doubt, and what to type next."""
    from callsheet.present import as_read, proposed

    if nothing_to_buy := proposed.nothing_to_buy(guess):
        print_page(out, [Line(nothing_to_buy, tone=Tone.WARNING)])
    rows = as_read.first_rows(
        guess.jobs.unique("row_id", keep="first", maintain_order=True).head(_FIRST).with_columns(to_buy=True)
    )
    print_page(out, [*(Line(_as_sent(row)) for row in rows), Facts(proposed.doubts(guess))])
    steps = steps_of_production(configs) if guess.films else None
    buys = proposed.buys(guess, is_given=is_given)
    _show_written(configs, proposed.facts(guess, configs), buys, steps)


def _as_sent(row: Mapping[str, str]) -> str:
    """A request on one line, cut to the width."""
    rest = "; ".join(filter(None, (row.get("images", ""), row["settings"])))
    room = max(20, out.width - len(row["row"]) - len(rest) - 8)
    return cut(f'{row["row"]}: "{cut(row["prompt"], room)}"; {rest}', out.width)


def _show_written(
    configs: Sequence[Path],
    facts: list[tuple[str, str]],
    buys: str = "",
    steps: Mapping[str, str] | None = None,
) -> None:
    """Prints what was written, what it buys, and what to type next: a command is a line of its own."""
    name = shlex.quote(str(configs[0]))
    written = " and ".join(safe(str(config)) for config in configs)
    print_line(out, f"Wrote [bold]{written}[/]{safe(f': {buys}' if buys else '.')}")
    steps = steps or {f"callsheet quote {name}": "", f"callsheet run {name}": ""}
    lines = [line for step, does in steps.items() for line in (step, f"  {does}") if line.strip()]
    print_page(out, [Facts(facts), Listed("Next", lines, are_commands=True)])


PARTS = ("flows", "tasks", "configs", "automations", "prefect.yaml")
AGENTS = "AGENTS.md"


def make_project(folder: Path) -> None:
    """Writes the parts of a project (`PARTS`) into a folder; never over what is there.

    Raises:
        ConfigError: one of them is there already, or the folder cannot be written; nothing was written.
    """
    check_free(
        *(folder / part for part in (*PARTS, AGENTS)),
        hint="Name another folder: callsheet init --project FOLDER",
    )
    from callsheet.config.schema import MODELINE, write_schema

    package = Path(__file__).parents[1]
    installed = package / "project"  # otherwise the files are in the root of the repository
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part in PARTS:
            source = (installed if installed.exists() else package.parent) / part
            if source.is_dir():
                shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(source, folder / part)
        shutil.copyfile(SKILL, folder / AGENTS)
        for config in (folder / "configs").glob("*.yaml"):
            config.write_text(MODELINE + config.read_text("utf-8"), encoding="utf-8")
        write_schema(folder / "configs")
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from None


def check_free(*files: Path, hint: str) -> None:
    """Checks that nothing has these names.

    Raises:
        ConfigError: something has.
    """
    existing = [str(file) for file in files if os.path.lexists(file)]
    if existing:
        raise ConfigError(f"{' and '.join(existing)}: already there; nothing was written", hint=hint)


def up(
    port: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=65535,
            help="Port of the server on this machine. Without it: the server that Prefect is configured for, "
            "or 4200.",
            show_default=False,
        ),
    ] = None,
    backlot: Annotated[
        bool, typer.Option("--backlot", help="Also start a service to buy from that costs nothing.")
    ] = False,
    inbox: Annotated[
        bool,
        typer.Option(
            "--inbox", help="Also look each minute for batch files, as the deployment `inbox` says."
        ),
    ] = False,
) -> None:
    """Start the Prefect UI with all that it needs, and stay until Ctrl-C.

    Run it in the folder of your project, which `callsheet init --project` makes. It starts a Prefect server
    (one that runs already is used), the deployments of prefect.yaml, and a worker that carries out their
    runs.

    The worker has the environment of this terminal: set CALLSHEET_BASE_URL and CALLSHEET_API_KEY first, or
    try it with --backlot.

    Ctrl-C ends what it has started, and nothing else. Runs at work stop in order; the next run goes on from
    there. Run the command again whenever you like: schedules, switches and parameters that you have set in
    the UI stay, but for what has changed in prefect.yaml since.
    """
    if not (Path("prefect.yaml").exists() and Path("flows/up.py").exists()):
        raise ConfigError(
            f"{shlex.quote(str(Path.cwd()))} is no folder of a Callsheet project: it has no prefect.yaml and "
            "flows/up.py",
            hint="Go to the folder of your project, or make one: callsheet init --project FOLDER",
        )
    arguments = [f"--{name}" for name, is_set in (("backlot", backlot), ("inbox", inbox)) if is_set]
    arguments += ["--port", str(port)] if port else []
    sys.stdout.flush()
    sys.stderr.flush()
    # `python -m` finds the modules of the folder here.
    os.execv(sys.executable, [sys.executable, "-m", "flows.up", *arguments])  # noqa: S606 - our own program


_Config = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG",
        help="A config file; without it, the environment says which service.",
        show_default=False,
    ),
]


def models(config: _Config = None, set_: Sets = None, json: Json = False) -> None:
    """List the service's models, what they take, and their prices."""
    catalogue = _ask(config, set_, lambda client: client.models())
    if json:
        print_json({"models": [model.model_dump(mode="json") for model in catalogue.values()]})
    else:
        from callsheet.present.catalogue import screen

        print_page(out, screen(catalogue.values()))


def balance(config: _Config = None, set_: Sets = None, json: Json = False) -> None:
    """Say what the workspace has to spend."""
    amount = _ask(config, set_, lambda client: client.balance())
    if json:
        print_json({"balance": dollars(amount), "currency": "USD"})
    else:
        typer.echo(of_limit(amount, None))


def _ask(
    config: Path | None,
    overrides: list[str] | None,
    question: Callable[[Client], Coroutine[Any, Any, T]],
) -> T:
    """Asks the service one question, with a config or with the environment alone."""
    if overrides and not config:
        raise ConfigError(
            "--set changes a setting of a config, and none is named", hint="Name it before --set."
        )
    if config:
        return ask_service(open_client(load_settings(config, overrides)), question)
    return ask_service(client_of_environment("Set it, or name a config."), question)
