"""Groundedness as columns."""

from hypothesis import given
from hypothesis import strategies as st

from monitor.rubrics.bands import BANDS
from monitor.web.report.groundedness import TALL, WIDTH, chart

rows = st.lists(
    st.tuples(st.integers(0, 99), st.one_of(st.none(), st.floats(0, 1)), st.integers(0, 9), st.sampled_from(BANDS))
)


@given(rows)
def test_columns_stand_apart_inside_and_under_their_band(turns: list[tuple[int, float | None, int, str]]) -> None:
    drawn = chart(turns)
    assert [(column.turn, column.ratio) for column in drawn.columns] == [row[:2] for row in turns]
    ends = [0, *(column.x + WIDTH for column in drawn.columns)]
    assert all(column.x >= end for column, end in zip(drawn.columns, ends, strict=False))
    assert ends[-1] <= drawn.width
    for column, row in zip(drawn.columns, turns, strict=True):
        assert column.height == round((row[1] or 0) * TALL)
        assert [band.name for band in drawn.bands if band.start <= column.x and column.x + WIDTH <= band.end] == [
            row[3]
        ]
