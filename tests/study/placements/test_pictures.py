"""The page of placements, drawn from their rows."""

from multigpu.placements import find_placement, placements
from multigpu_study.placements.pictures import held, movement, placements_page


def test_every_placement_is_drawn_from_its_row() -> None:
    page = placements_page()
    assert page.count("<svg") == len(placements()) and all(
        f"(placement-{name})=" in page for name in placements()
    )
    exp2 = placements()["exp2"]
    assert [[letter for letter, _, _ in held(exp2, device)] for device in (None, 0)] == [
        ["V", "E", "U"],
        ["C"],
    ]


def test_an_all_reduce_that_is_written_out_is_named() -> None:
    told = "gradients, by all-reduce (central server)"
    assert movement(find_placement("replicated_server")) == ("gpus", told)
