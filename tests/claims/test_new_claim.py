"""A new claim touches two files: its document, and the ledger. In a copied tree it then stands wherever claims stand."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from multigpu import paths
from multigpu.claims import all_claims
from tests.factory import empty_study

NEW = f"C{len(all_claims()) + 1}"
ENTRY = f"""
- number: {NEW}
  sentence: Planted sentences hold.
  documents: ['004']
  figure: 2x
  page: 04-all-reduce
  tests:
  - of: runs
    where: {{model: nmt004}}
    contrasts:
    - label: rate on 2 GPUs over one
      over: {{devices: 2}}
      under: {{devices: 1}}
      effect: 2.0
    scope: None.
  decides: two Runs
  gpus: 2
  seconds: 10
"""
TELL = """
import json
from multigpu.claims import find_claim
from multigpu.claims.ledger import entries
from multigpu.claims import all_claims
from multigpu.report import claims_page
last = {number: rows[-1].digest for number, rows in entries().items()}
unwritten = [f"{one.number} {one.digest}" for one in all_claims() if one.predicates and last.get(one.number) != one.digest]
print(json.dumps({"digest": find_claim("NEW").digest, "unwritten": unwritten, "page": claims_page()}))
""".replace("NEW", NEW)


@pytest.mark.slow
def test_a_new_claim_stands_in_the_command_on_the_page_and_in_the_ledger(tmp_path: Path) -> None:
    empty_study(tmp_path)
    shutil.copytree(paths.REPOSITORY / "src", tmp_path / "src")
    own = {name: value for name, value in os.environ.items() if name != "MULTIGPU_HOME"} | {"PYTHONPATH": str(tmp_path / "src")}

    def run(*words: str) -> str:
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=own, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    document, ledger = tmp_path / "src" / "multigpu" / "claims" / "documents" / "004.yaml", tmp_path / "data" / "claims-ledger.csv"
    with document.open("a") as file:
        file.write(ENTRY)
    before = json.loads(run("-c", TELL))
    assert before["unwritten"] == [f"{NEW} {before['digest']}"], "what the ledger lacks is found"
    with ledger.open("a") as file:
        file.write(f"{NEW},{before['digest']},2030-01-01T00:00:00+00:00,,none,first test\n")
    after = json.loads(run("-c", TELL))
    assert after["unwritten"] == [] and f'<tr id="{NEW}">' in after["page"] and f'href="#{NEW}"' in after["page"]
    lines = run("-m", "multigpu", "claims").splitlines()
    (line,) = [line for line in lines if line.startswith(f"{NEW} ")]
    assert "not yet measured" in line and "Planted sentences hold." in line
    assert "two Runs (about 10 s of 2 GPUs)" in " ".join(run("-m", "multigpu", "claims", NEW).split())
