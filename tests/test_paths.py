from __future__ import annotations

from pathlib import Path

import pytest

from multigpu import paths


def test_the_repository_is_the_folder_with_pyproject(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(paths.HOME_VARIABLE, raising=False)
    assert paths.find_repository() == Path(__file__).resolve().parents[1]


def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    assert paths.find_repository() == tmp_path.resolve()
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "absent"))
    with pytest.raises(FileNotFoundError, match=r"^MULTIGPU_HOME names .*absent, which is not a folder: set it to the repository's root$"):
        paths.find_repository()


def test_without_a_repository_the_sentence_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv(paths.HOME_VARIABLE, raising=False)
    monkeypatch.setattr(paths, "__file__", str(tmp_path / "site" / "paths.py"))
    with pytest.raises(FileNotFoundError, match=r"holds pyproject.toml: set MULTIGPU_HOME to the repository's root$"):
        paths.find_repository()
