"""A small study with known shape: two workloads, four placements, one to eight GPUs; one point out of memory. What a telephone shows."""

from matplotlib.text import Text

from multigpu.analysis.picture import Picture
from multigpu.record import Record
from tests.factory import make_point, make_record

SHARES = {"ddp": (1.0, 0.95, 0.9), "independent": (1.0, 0.99, 0.98), "exp4": (0.98, 0.75, 0.5), "exp2": (0.5, 0.25, 0.1)}
"""Of perfect scaling from one GPU under ddp, on 1, 2 and 8 GPUs."""
DEVICES = (1, 2, 8)
NOISE = (1.0, 1.004, 0.996, 1.002, 0.998)


def study(repeats: int = 5, shares: dict[str, tuple[float, ...]] | None = None, **fields: object) -> list[Record]:
    records = []
    for workload, batch, single in (("nmt", 128, 600_000.0), ("cnn", 64, 2_800.0), ("cnn", 256, 4_500.0)):
        for placement, of_perfect in (shares or SHARES).items():
            for count, share in zip(DEVICES, of_perfect, strict=True):
                point = {"placement": placement, "devices": count, "workload": workload, "batch_size": batch, **fields}
                if (placement, count, batch) == ("exp2", 8, 256):
                    records.append(make_record(status="out_of_memory", reason="150 GiB wanted, 128 there", **point))
                    continue
                # a larger batch scales better
                gain = 1.0 if batch == 256 else 0.8 if count == 8 else 1.0
                records += make_point([single * count * share * gain * x for x in NOISE[:repeats]], **point)
    return records


COLUMN_PX = 342  # of a page of 390 px


def read_on_a_telephone(picture: Picture) -> bool:
    """Whether the narrow drawing needs no scrolling, cuts nothing off, and has letters of at least 9 px; an inch is 72 px on a page."""
    drawing = picture.narrow
    assert drawing
    drawing.draw_without_rendering()
    sizes = [text.get_fontsize() for text in drawing.findobj(Text) if text.get_visible() and text.get_text()]
    width, height = drawing.get_size_inches()
    box = drawing.get_tightbbox()
    return min(sizes) >= 9 and 72 * width <= COLUMN_PX and min(box.x0, box.y0) >= 0 and box.x1 <= width and box.y1 <= height
