"""Every citation of a page of `docs/`, in code and in documents, has its page and section."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from pydoc import locate

ROOT = Path(__file__).parents[2]
FOLDERS = ("callsheet", "backlot", "flows", "tasks", "tests", "benchmarks", "docs", "configs")
SUFFIXES = {".py", ".md", ".yaml", ".yml", ".toml"}

NUMBER = r"\d+(?:\.\d+)?"
INTERFACE = re.compile(rf"INTERFACE ({NUMBER}(?:(?:, | and | to |-){NUMBER})*)")
PAGE = re.compile(r"""docs/([\w-]+\.md)(?:, "([^"]+)")?""")
COMMENT_CONTINUED = re.compile(r"\s*\n\s*(?:#\s*)?")


def texts() -> Iterator[tuple[Path, str]]:
    """Every file that can cite, with its text on one line each; a citation may be broken over two lines."""
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*")) if file.is_file()]
    for file in [*sorted(ROOT.glob("*.md")), ROOT / "pyproject.toml", ROOT / "prefect.yaml", *files]:
        if file.suffix in SUFFIXES and file != Path(__file__):
            yield file.relative_to(ROOT), COMMENT_CONTINUED.sub(" ", file.read_text("utf-8"))


def headings(page: str) -> set[str]:
    """The titles of a page's headings."""
    return set(re.findall(r"^#+ (.+)$", (ROOT / "docs" / page).read_text("utf-8"), re.MULTILINE))


def test_every_section_of_the_interface_that_is_cited_exists() -> None:
    sections = {title.partition(" ")[0].removesuffix(".") for title in headings("interface.md")}
    cited = [
        (str(file), number)
        for file, text in texts()
        for citation in INTERFACE.finditer(text)
        for number in re.findall(NUMBER, citation[1])
    ]
    assert len(cited) > 100, "the citations are not found any more"
    assert [(file, number) for file, number in cited if number not in sections] == []


def test_each_clause_of_the_interface_says_what_carries_it() -> None:
    """And each name exists. Purpose, keys' origin and what is not specified are no clauses to carry."""
    clauses = {title.partition(" ")[0].removesuffix(".") for title in headings("interface.md")}
    text = (ROOT / "docs/interface.md").read_text("utf-8").partition("\n## 10. ")[2]
    carried = re.findall(r"^- ([\d., ]+) (.+)$", text, re.MULTILINE)
    named = {clause for listed, _ in carried for clause in listed.split(", ")}
    assert named == clauses - {"The", "1", "2", "4", "5", "5.3", "5.5", "10"}
    for clause, said in carried:
        names = re.findall("`(.+?)`", said)
        assert names or said.startswith("nothing: "), clause
        assert [name for name in names if locate(f"callsheet.{name}") is None] == []


def test_every_page_and_section_that_is_cited_exists() -> None:
    cited = [(str(file), *page.groups()) for file, text in texts() for page in PAGE.finditer(text)]
    assert len(cited) > 10, "the citations are not found any more"
    missing = [
        (file, page, section)
        for file, page, section in cited
        if not (ROOT / "docs" / page).exists() or (section and section not in headings(page))
    ]
    assert missing == []


def test_every_page_that_the_command_is_said_to_print_exists() -> None:
    named = [
        (str(file), page)
        for file, text in texts()
        for page in re.findall(r"`callsheet docs ([a-z_]+)`", text)
    ]
    assert len(named) > 5, "the names are not found any more"
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} | {"skill"}
    assert [(file, page) for file, page in named if page not in pages] == []


def test_nothing_cites_a_document_that_is_not_in_the_repository() -> None:
    strangers = [
        (str(file), word) for file, text in texts() for word in re.findall(r"\bDESIGN\b|INTERFACE\.md", text)
    ]
    assert strangers == []


def anchors(page: Path) -> set[str]:
    """What a link may have after `#`: the page's headings, as GitHub writes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_link_between_the_documents_leads_to_a_file_and_to_a_heading() -> None:
    dead = [
        (str(page.relative_to(ROOT)), target, anchor)
        for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text("utf-8"))
        if not (page.parent / target).exists()
        or (anchor and anchor not in anchors(page.parent / target if target else page))
    ]
    assert dead == []


def test_every_path_of_the_repository_that_a_document_names_exists() -> None:
    folders = "callsheet|flows|tasks|backlot|tests|docs|configs|benchmarks"
    missing = [
        (str(page.relative_to(ROOT)), path)
        for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
        for path in re.findall(rf"`((?:{folders})/[\w./-]+)`", page.read_text("utf-8"))
        if not (ROOT / path).exists()
    ]
    assert missing == []
