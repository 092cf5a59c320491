"""What a restart keeps: accepted generations, top-ups, created keys and the signing secret, in SQLite.

Money is stored in whole ten-thousandths of a dollar, so that sums in SQL are exact. Times are Unix
milliseconds. In a state folder the database is in WAL mode: everything that was answered survives a kill.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from backlot.accounts import ApiKey, ModelType, Workspace
from backlot.errors import SettingsError
from backlot.media.recipe import Recipe, Reference

TEN_THOUSANDTH = Decimal("0.0001")
WHEN_MADE = 2**62  # the `due_at` of a video that is finished when its program has made it

VERSION = 1  # of the schema
SCHEMA = """
CREATE TABLE secret (value BLOB NOT NULL);
INSERT INTO secret VALUES (randomblob(32));
CREATE TABLE generations (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    project TEXT NOT NULL,
    type TEXT NOT NULL,
    state TEXT NOT NULL,           -- pending, completed, failed
    model TEXT NOT NULL,
    recipe TEXT NOT NULL,          -- JSON: what the media is made from
    unit_price INTEGER NOT NULL,   -- ten-thousandths of a dollar
    quantity INTEGER NOT NULL,
    cost INTEGER NOT NULL,         -- ten-thousandths; reserved while pending, charged when completed
    due_at INTEGER,                -- when a pending video finishes; NULL: never; WHEN_MADE: by its program
    error_code TEXT,               -- set from the start where a drawn video is going to fail
    error_message TEXT,
    finished_at INTEGER,
    deletes_at INTEGER,            -- Unix seconds
    recorded INTEGER               -- Unix microseconds; no two are equal, so it is the order too
) WITHOUT ROWID;
CREATE INDEX charges ON generations (workspace, project, finished_at, cost)
    WHERE state = 'completed';
CREATE INDEX waiting ON generations (due_at) WHERE state = 'pending';
CREATE UNIQUE INDEX newest ON generations (workspace, recorded);
CREATE TABLE samples (
    project TEXT NOT NULL,         -- with its workspace
    request TEXT NOT NULL,         -- hash of what was asked for
    count INTEGER NOT NULL,        -- how often it was accepted
    PRIMARY KEY (project, request)
) WITHOUT ROWID;
CREATE TABLE reference_images (
    generation_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    role TEXT NOT NULL,
    url TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (generation_id, position)
) WITHOUT ROWID;
CREATE TABLE top_ups (
    workspace TEXT NOT NULL,
    amount INTEGER NOT NULL,       -- ten-thousandths of a dollar
    made_at INTEGER NOT NULL
);
CREATE TABLE keys (
    digest TEXT PRIMARY KEY,       -- SHA-256 of the key, which is kept nowhere
    hint TEXT NOT NULL,
    workspace TEXT NOT NULL,
    project TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER
) WITHOUT ROWID;
"""


@dataclass(slots=True)
class Generation:
    """An accepted generation. Money in dollars, times in Unix milliseconds (`deletes_at`: seconds).

    `recorded` is when the store has taken it, in Unix microseconds; no two have the same.
    """

    id: str
    workspace: str
    project: str
    type: ModelType
    state: str
    model: str
    recipe: Recipe
    unit_price: Decimal
    quantity: int
    cost: Decimal
    due_at: int | None = None
    error_code: str | None = None
    error_message: str | None = None
    finished_at: int | None = None
    deletes_at: int | None = None
    recorded: int = 0

    @property
    def price(self) -> Decimal:
        """What is or will be charged: a failed generation costs nothing."""
        return Decimal(0) if self.state == "failed" else self.cost

    def has_media(self, now: float) -> bool:
        """Whether its file is there: it is finished, and not deleted yet."""
        return self.state == "completed" and now < (self.deletes_at or 0)


FIELDS = tuple(Generation.__dataclass_fields__)


def whole(dollars: Decimal) -> int:
    """Dollars as ten-thousandths. Raises `ValueError` when a digit would be lost."""
    units = dollars / TEN_THOUSANDTH
    if units != int(units):
        raise ValueError(f"{dollars} has more than four fractional digits")
    return int(units)


class Store:
    """The database. It is used from the event loop's thread only.

    Raises:
        SettingsError: the folder cannot be used, or another server uses it.
    """

    def __init__(self, folder: Path | None) -> None:
        path = str(folder / "backlot.db") if folder else ":memory:"
        try:
            if folder:
                folder.mkdir(parents=True, exist_ok=True)
            self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1)
        except (OSError, sqlite3.DatabaseError) as error:
            raise SettingsError(f"the state folder {folder} cannot be used: {error}") from None
        try:
            # Exclusive: two servers on one state folder would spend the same balance twice.
            self.db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self.db.execute("PRAGMA journal_mode = WAL")
            self.db.execute("PRAGMA synchronous = NORMAL")
            if not self.number("SELECT COUNT(*) FROM sqlite_master"):
                self.db.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
            if self.number("PRAGMA user_version") != VERSION:
                self.db.close()
                raise SettingsError(f"{path} is of another version of the backlot; take an empty folder")
        except sqlite3.DatabaseError as error:
            self.db.close()
            raise SettingsError(f"{path}: {error}; does another backlot use this folder?") from None
        self.secret: bytes = self.db.execute("SELECT value FROM secret").fetchone()[0]
        self.last = self.number("SELECT COALESCE(MAX(recorded), 0) FROM generations")

    def close(self) -> None:
        """Closes the database."""
        self.db.close()

    def add(self, generation: Generation) -> None:
        """Records an accepted generation, with its reference images, in one transaction.

        Its `recorded`, the present time, is made later than every other; its recipe gets its sample number,
        where its program did not have to know it before.
        """
        generation.recorded = self.last = max(generation.recorded, self.last + 1)
        insert = f"INSERT INTO generations ({', '.join(FIELDS)}) VALUES ({', '.join('?' * len(FIELDS))})"  # noqa: S608 - our own names
        with self.db:
            self.db.execute("BEGIN")
            recipe = generation.recipe
            if not recipe.program:
                recipe = generation.recipe = replace(recipe, sample=self.next_sample(generation))
            row = {name: getattr(generation, name) for name in FIELDS} | {
                "recipe": recipe.to_json(),
                "unit_price": whole(generation.unit_price),
                "cost": whole(generation.cost),
            }
            self.db.execute(insert, list(row.values()))
            images = [(generation.id, n, r.role, r.url, r.data) for n, r in enumerate(recipe.references)]
            self.db.executemany("INSERT INTO reference_images VALUES (?, ?, ?, ?, ?)", images)

    def next_sample(self, generation: Generation) -> int:
        """Counts a generation among those of its project that were asked for in the same words."""
        request = replace(generation.recipe, sample=1).digest()
        count = "INSERT INTO samples VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET count = count + 1"
        return self.number(
            f"{count} RETURNING count", f"{generation.workspace}/{generation.project}", request
        )

    def finish(self, video: Generation) -> None:
        """Records the final state of a video."""
        names = ("state", "finished_at", "deletes_at", "error_code", "error_message")
        row = [*(getattr(video, name) for name in names), video.id]
        self.db.execute(f"UPDATE generations SET {' = ?, '.join(names)} = ? WHERE id = ?", row)  # noqa: S608 - our own names

    def get(self, generation_id: str) -> Generation | None:
        """A generation by its id; None where there is none."""
        return next(self.select("id = ?", generation_id), None)

    def pending(self, workspace: str) -> Iterator[Generation]:
        """The videos of a workspace that are not finished."""
        return self.select("state = 'pending' AND workspace = ?", workspace)

    def waiting(self) -> list[Generation]:
        """The videos that wait for their program, in their order, with their reference images."""
        videos = list(self.select("state = 'pending' AND due_at = ? ORDER BY recorded", WHEN_MADE))
        for video in videos:
            video.recipe = replace(video.recipe, references=self.references(video.id))
        return videos

    def due(self, now_ms: int) -> list[Generation]:
        """The videos that are finished now, in their order."""
        return list(self.select("state = 'pending' AND due_at <= ? ORDER BY due_at, recorded", now_ms))

    def newest(self, workspace: str, limit: int, before: int | None = None) -> list[Generation]:
        """At most `limit` generations of a workspace, newest first; those recorded earlier than `before`."""
        condition = "workspace = ? AND recorded < ? ORDER BY recorded DESC LIMIT ?"
        return list(self.select(condition, workspace, before or self.last + 1, limit))

    def recorded_after(self, workspace: str, moment: int) -> int:
        """How many generations of a workspace were recorded after a moment."""
        query = "SELECT COUNT(*) FROM generations WHERE workspace = ? AND recorded > ?"
        return self.number(query, workspace, moment)

    def number(self, query: str, *values: str | int) -> int:
        """The single number that a query finds."""
        value: int = self.db.execute(query, values).fetchone()[0]
        return value

    def select(self, condition: str, *values: str | int) -> Iterator[Generation]:
        """The generations that match a condition."""
        for row in self.db.execute(f"SELECT {', '.join(FIELDS)} FROM generations WHERE {condition}", values):  # noqa: S608 - our own conditions
            fields = dict(zip(FIELDS, row, strict=True))
            fields["recipe"] = Recipe.from_json(fields["recipe"])
            fields["unit_price"] *= TEN_THOUSANDTH
            fields["cost"] *= TEN_THOUSANDTH
            yield Generation(**fields)

    def references(self, generation_id: str) -> tuple[Reference, ...]:
        """A generation's reference images, in the request's order."""
        query = "SELECT role, url, data FROM reference_images WHERE generation_id = ? ORDER BY position"
        return tuple(Reference(*row) for row in self.db.execute(query, [generation_id]))

    def spent(self, workspace: str) -> Decimal:
        """The sum of all charges of a workspace, in dollars."""
        query = "SELECT COALESCE(SUM(cost), 0) FROM generations WHERE state = 'completed' AND workspace = ?"
        return self.number(query, workspace) * TEN_THOUSANDTH

    def costs(self, workspace: str, project: str, start_ms: int, end_ms: int) -> dict[str, Decimal]:
        """Dollars charged to a project by UTC date (`YYYY-MM-DD`), from `start_ms` to `end_ms` inclusive."""
        query = (
            "SELECT date(finished_at / 1000, 'unixepoch') AS day, SUM(cost) FROM generations "
            "WHERE state = 'completed' AND workspace = ? AND project = ? AND finished_at BETWEEN ? AND ? "
            "GROUP BY day"
        )
        rows = self.db.execute(query, [workspace, project, start_ms, end_ms])
        return {day: units * TEN_THOUSANDTH for day, units in rows}

    def top_up(self, workspace: str, amount: Decimal, made_at: int) -> None:
        """Records money that was added to a workspace's balance."""
        self.db.execute("INSERT INTO top_ups VALUES (?, ?, ?)", [workspace, whole(amount), made_at])

    def top_ups(self, workspace: str) -> Decimal:
        """The sum of the top-ups of a workspace, in dollars."""
        query = "SELECT COALESCE(SUM(amount), 0) FROM top_ups WHERE workspace = ?"
        return self.number(query, workspace) * TEN_THOUSANDTH

    def add_key(self, key: ApiKey) -> None:
        """Records a key that was created while the server runs."""
        row = [key.digest, key.hint, key.workspace.name, key.project, key.created_at, key.revoked_at]
        self.db.execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?)", row)

    def revoke_key(self, digest: str, revoked_at: int) -> None:
        """Records that a key is no longer valid; one of the settings is not recorded here."""
        self.db.execute("UPDATE keys SET revoked_at = ? WHERE digest = ?", [revoked_at, digest])

    def created_keys(self, workspace: Workspace) -> list[ApiKey]:
        """The recorded keys of a workspace, the oldest first."""
        query = "SELECT * FROM keys WHERE workspace = ? ORDER BY created_at"
        rows = self.db.execute(query, [workspace.name])
        return [ApiKey(digest, hint, workspace, *fields) for digest, hint, _, *fields in rows]
