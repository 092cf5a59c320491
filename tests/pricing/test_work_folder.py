"""Plans on this machine: where they are, and the batch's last one."""

from __future__ import annotations

import pytest

from callsheet.config.settings import Settings
from callsheet.errors import StorageError
from callsheet.pricing.plan import last_plan
from callsheet.pricing.work_folder import plan_path, work_folder
from tests.pricing.plans import Maker


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def settings(**sections: object) -> Settings:
        base = Maker(tmp_path).settings(tmp_path / "shots.csv")
        return Settings.model_validate(base.model_dump() | sections)

    return settings


def test_a_batch_has_its_own_plan(settings, tmp_path):
    assert last_plan(settings()) is None
    plan = Maker(tmp_path)("prompt\nx\n", to=str(plan_path(settings())))
    last = last_plan(settings())
    assert last is not None
    assert last.table.equals(plan.table)
    assert last_plan(settings(batch="another")) is None
    same_folder = {"report": {"url": settings().report.url}}
    assert last_plan(settings(batch="another", **same_folder)) is None


def test_the_plan_of_a_report_on_s3_is_on_this_machine(settings):
    assert str(plan_path(settings(report={"url": "s3://bucket/{batch}"}))) == ".callsheet/shots/plan.parquet"


@pytest.mark.parametrize("url", ["file", "file/below", "nul\0", "s3://bucket/report"])
def test_a_work_folder_that_cannot_be_made_is_named_in_the_error(settings, tmp_path, url):
    (tmp_path / "file").touch()
    (tmp_path / ".callsheet").touch()
    with pytest.raises(StorageError, match="the folder cannot be made") as caught:
        work_folder(settings(report={"url": url}))
    assert caught.value.message.startswith(".callsheet/shots: " if "://" in url else f"{url}: ")
    assert ("report.url" in caught.value.hint) == ("://" not in url)
