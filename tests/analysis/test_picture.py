"""What pages are put together from."""

from multigpu.analysis.picture import Shown, folded, together


def test_parts_stand_one_below_the_other_open_or_folded() -> None:
    first, second = Shown("<p>1</p>"), Shown("<p>2</p>")
    assert together(first, second).html == "<p>1</p><p>2</p>" and together().html == ""
    assert folded("a < b of `grid`", first, second).html == (
        "<details><summary>a &lt; b of <code>grid</code></summary>\n<p>1</p><p>2</p></details>\n"
    )
