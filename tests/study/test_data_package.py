"""What others use of the Records is in step with them: table, codebook, schema, card, hashes,
citation.
"""

import hashlib
import io
import json
import re
import shutil
import tomllib
from pathlib import Path

import pandas as pd
import pytest

from multigpu import paths
from multigpu.analysis.frame import COLUMNS, frame_of
from multigpu.analysis.read import records_of
from multigpu.analysis.verify import altered_files, raw_records
from multigpu.cli.main import main
from multigpu.records.record import Record, RecordStore
from tests.factory import make_record, plant
from tests.refusals import refused
from tests.scripts import load

PACKAGE = load("data_package")
AGAIN = "run workflow/data_package.py, which writes it again"


def test_the_flat_table_holds_every_run_and_the_codebook_every_column() -> None:
    told = pd.read_parquet(paths.DATA / "records.parquet")
    fresh = frame_of(records_of(paths.RUNS))
    assert list(told) == list(COLUMNS) and len(told) == len(fresh) > 4000, AGAIN
    for name in ("key", "units_per_s", "boot", "placement", "moved_bytes"):
        pd.testing.assert_series_equal(told[name], fresh[name], check_dtype=False)
    book = pd.read_csv(paths.DATA / "codebook.csv", keep_default_na=False)
    written = PACKAGE.codebook(fresh).to_csv(index=False)
    assert book.equals(pd.read_csv(io.StringIO(written), keep_default_na=False)), AGAIN
    seconds = book.loc[book["column"].str.endswith("_s") & ~book["column"].str.contains("units")]
    assert set(seconds["unit"]) == {"s"}


def test_schema_and_card_are_those_of_today() -> None:
    told = json.loads((paths.DATA / "record.schema.json").read_text())
    assert told == json.loads(json.dumps(Record.model_json_schema())), AGAIN
    card = json.loads((paths.DATA / "croissant.json").read_text())
    flat = (paths.DATA / "records.parquet").read_bytes()
    assert card["distribution"][0]["sha256"] == hashlib.sha256(flat).hexdigest(), AGAIN
    assert [one["name"] for one in card["recordSet"][0]["field"]] == list(COLUMNS), AGAIN
    licence = (paths.DATA / "LICENSE").read_text()
    assert card["license"].rstrip("/") in licence and "CC BY 4.0" in licence
    record = next(raw.record for raw in raw_records(paths.RUNS / "1x-nvidia-h200") if raw.record)
    assert set(record) <= set(told["properties"]) and set(told["required"]) <= set(record)


def test_the_manifest_lists_every_committed_file_and_a_change_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert PACKAGE.manifest(paths.DATA) == (paths.DATA / "manifest.csv").read_text(), AGAIN
    file = next(iter(sorted((paths.RUNS / "1x-nvidia-h100-80gb-hbm3").glob("records-*"))))
    copy = tmp_path / "runs" / "1x-nvidia-h100-80gb-hbm3" / file.name
    copy.parent.mkdir(parents=True)
    shutil.copy(file, copy)
    (tmp_path / "manifest.csv").write_text(PACKAGE.manifest(tmp_path))
    assert not list(altered_files(tmp_path))
    copy.write_bytes(copy.read_bytes() + b" ")
    assert main(["verify", str(tmp_path)]) == 1
    assert f"{copy} is not what it was" in capsys.readouterr().out
    copy.unlink()
    assert [said for said in altered_files(tmp_path) if "is gone" in said]


def test_what_a_wheel_takes_along_is_cut_from_the_flat_table(tmp_path: Path) -> None:
    planted = [make_record(), make_record(devices=1)]
    plant(RecordStore(tmp_path / "runs"), planted)
    flat = frame_of(planted).assign(unit="bricks")
    flat.to_parquet(tmp_path / "records.parquet", index=False)
    file = load("publish").publish(tmp_path / "published.parquet", tmp_path)
    rows = pd.read_parquet(file).query("table == 'runs'")["row"].map(json.loads)
    assert {(row["key"], row["unit"]) for row in rows} == {(one.key, "bricks") for one in planted}
    flat[:1].to_parquet(tmp_path / "records.parquet", index=False)
    refused(
        "records.parquet is not of the Records of today: run ",
        load("publish").publish,
        file,
        tmp_path,
    )


def test_the_citation_is_of_this_version() -> None:
    told = (paths.REPOSITORY / "CITATION.cff").read_text()
    project = tomllib.loads((paths.REPOSITORY / "pyproject.toml").read_text())["project"]
    assert re.search(r"^version: (.*)$", told, re.M)[1] == project["version"]  # type: ignore[index]
    assert re.search(r"^license: (.*)$", told, re.M)[1] == project["license"]  # type: ignore[index]
