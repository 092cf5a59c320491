"""The command line: which commands there are, and how every error becomes a message and an exit code."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from callsheet.cli import books, buying, costs, init, mcp, output, purse, review, rows
from callsheet.cli.demo import demo
from callsheet.errors import CallsheetError, ConfigError, OutputError, code_of, ends_as, known_error
from callsheet.present import what_next
from callsheet.present.console import print_page
from callsheet.present.page import Line, Page

LISTED_PAGE = re.compile(r"\| \[docs/(?P<name>\w+)\.md\]\(.+?\) \| (?P<about>.+) \|")
"""A line of README's list of pages."""


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"callsheet {version('callsheet')}")
        raise typer.Exit


app = typer.Typer(
    name="callsheet",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="New here? `callsheet demo` runs a real batch on this machine, without an account.",
)
GROUPS: dict[str, dict[str, Callable[..., Any]]] = {
    "Begin": {"demo": demo, "init": init.init},
    "Buy": {
        "quote": buying.quote,
        "run": buying.run,
        "collect": buying.collect,
        "set": buying.set_values,
        "pause": buying.pause,
        "resume": buying.resume,
    },
    "Look": {
        "status": buying.status,
        "show": rows.show,
        "failed": rows.failed,
        "open": rows.open_,
        "review": review.review,
        "tidy": review.tidy,
        "export": rows.export,
        "report": rows.report,
    },
    "Money": {
        "costs": costs.costs,
        "purse": purse.purse,
        "resolve": books.resolve,
        "reconcile": books.reconcile,
        "claim": books.claim,
        "balance": init.balance,
    },
    "At night": {"up": init.up},
    "Service": {"models": init.models, "mcp": mcp.mcp},
}
"""The commands, in the order of work."""

for group, commands in GROUPS.items():
    for name, command in commands.items():
        app.command(name, rich_help_panel=group)(command)
app.add_typer(books.ledger, rich_help_panel="Money")


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Buy images and videos by the batch: priced before, paid once, never lost."""


@app.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    rich_help_panel="Service",
)
def backlot(context: typer.Context) -> None:
    """Run the whole generation service on this machine, with real images and videos, for trials and tests."""
    from backlot.cli import app as backlot_app  # no other command waits for its import

    backlot_app(context.args, prog_name=context.command_path)


@app.command(rich_help_panel="Begin")
def docs(
    page: Annotated[
        str | None,
        typer.Argument(
            metavar="PAGE",
            help="A page to print, such as configuration. Without it: a list.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """List the pages of the documentation, or print one.

    They are Markdown files, in the folder that the list ends with. `skill` is a SKILL.md for agents.
    """
    folder = output.docs_folder()
    if page is None:
        readme = folder.with_name("README.md").read_text("utf-8")
        listed: Page = []
        for line in readme.partition("\n## Pages\n")[2].splitlines():
            if line.startswith("### "):
                listed.append(Line(strong=line[4:]))
            elif row := LISTED_PAGE.fullmatch(line):
                listed.append(Line(f" {row['about']}", strong=f"{row['name']:<17}", indent=2))
        last = Line(f"callsheet docs PAGE prints one; the files are in {folder}")
        print_page(output.out, [*listed, last])
        return
    pages = {file.stem: file for file in folder.glob("*.md")} | {"skill": output.SKILL}
    if not (file := pages.get(Path(page).stem)):
        raise ConfigError(f"the documentation has no page {page}", hint="`callsheet docs` lists the pages.")
    with output.out.pager() if output.out.is_terminal else nullcontext():
        output.out.print(file.read_text("utf-8"), markup=False, end="")


@app.command(rich_help_panel="Begin")
def schema() -> None:
    """Print the JSON Schema of the config, with which an editor completes and checks it.

    `callsheet init` writes it beside each config, whose first line names it for editors that know YAML.
    """
    from callsheet.config.schema import schema_text

    typer.echo(schema_text(), nl=False)


for command_info in (*app.registered_commands, *books.ledger.registered_commands):
    # typer would break a paragraph of the help where the docstring's lines end.
    command_info.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(command_info.callback) or "")


def main() -> None:
    """Runs a command: every error that Callsheet knows becomes a message and an exit code."""
    output.check_streams()
    try:
        try:
            code = app(standalone_mode=False)
        finally:
            output.flush()
    except typer.TyperException as error:
        message = error.format_message().replace("Value error, ", "")
        if not message:  # nothing was asked for, and the help is printed
            sys.exit(error.exit_code)
        context = getattr(error, "ctx", None)
        command = context.command_path if context else app.info.name
        _fail(ConfigError(message, hint=f"{command} --help says what there is."))
    except (CallsheetError, BaseExceptionGroup) as error:
        callsheet_error = known_error(error)
        if callsheet_error is None:
            raise
        _fail(callsheet_error)
    else:
        sys.exit(code)


def _fail(error: CallsheetError) -> None:
    # The error may have come before the options were parsed.
    if "--progress=jsonl" in sys.argv or ("--progress", "jsonl") in pairwise(sys.argv):
        from callsheet.cli.terminal import print_error

        print_error(error)
    else:
        output.show_error(error)
    if "--json" in sys.argv:
        config = next((word for word in sys.argv[2:] if word.endswith((".yaml", ".yml"))), None)
        answer: dict[str, Any] = {"error": error.message, "hint": error.hint, "code": code_of(error)}
        answer |= {"message": error.message, "where": error.where or None}
        answer |= {"next": what_next.after(error, config)}
        if stop := ends_as(error):
            answer |= {"outcome": "stopped", "stop_reason": stop.reason}
        with suppress(OutputError):  # stdout may be the very problem
            output.print_json(answer)
            output.flush()
    sys.exit(error.exit_code)
