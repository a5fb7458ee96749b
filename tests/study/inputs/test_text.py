"""The law of the words of drawn sentences, beside document 000's totals."""

from multigpu.inputs import drawn_text as law
from multigpu_study.published import load_published, published_value


def test_the_law_has_the_mean_of_document_000() -> None:
    table = load_published("000_experiments")
    table = table[table["experiment"] != "Exp5"]
    pairs = published_value("000_statements", "mini_batches") * table["batch_size"] * table["gpus"]
    published = table["total_time_s"] * table["words_per_s"] / pairs
    # a source's mean is its target's length
    words_a_pair = 2 * law.target_probabilities() @ law.WORDS + 1
    assert published.min() < words_a_pair < published.max()
