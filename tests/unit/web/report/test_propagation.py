"""The drawing of what came back: boxes apart, lines from left to right and across no box."""

from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from monitor.web.report.propagation import HEIGHT, WIDTH, Box, Drawing, Edge, Node, draw


def node(number: int, turn: int) -> Node:
    return Node(key=f"k{number}", turn=turn, text="words " * number, says="unsupported", tone="bad", anchor=None)


@st.composite
def graphs(pick: st.DrawFn) -> tuple[list[Node], list[Edge]]:
    """Draw claims in turns; each but some has one origin in an earlier turn, as the rubric allows."""
    turns = sorted(pick(st.lists(st.integers(0, 12), min_size=1, max_size=30)))
    nodes = [node(number, turn) for number, turn in enumerate(turns)]
    edges = []
    for item in nodes:
        earlier = [other for other in nodes if other.turn < item.turn]
        origin = pick(st.sampled_from([None, *earlier]))
        if origin is not None:
            edges.append(Edge(start=origin.key, end=item.key, kind="repeat", says="repeats"))
    return nodes, edges


def crosses(box: Box, start: tuple[int, int], end: tuple[int, int]) -> bool:
    """Whether an upright or level stretch goes through the inside of a box."""
    left, right = sorted((start[0], end[0]))
    top, bottom = sorted((start[1], end[1]))
    return left < box.x + WIDTH and right > box.x and top < box.y + HEIGHT and bottom > box.y


@given(graphs())
def test_boxes_lie_apart_and_inside(graph: tuple[list[Node], list[Edge]]) -> None:
    drawing = draw(*graph)
    assert {box.node.key for box in drawing.boxes} == {item.key for item in graph[0]}
    for one, other in combinations(drawing.boxes, 2):
        assert abs(one.x - other.x) >= WIDTH or abs(one.y - other.y) >= HEIGHT
    for box in drawing.boxes:
        assert 0 <= box.x <= drawing.width - WIDTH
        assert 0 <= box.y <= drawing.height - HEIGHT


@given(graphs())
def test_later_turns_stand_right_of_earlier_ones(graph: tuple[list[Node], list[Edge]]) -> None:
    for one, other in combinations(draw(*graph).boxes, 2):
        assert (one.node.turn < other.node.turn) == (one.x < other.x)


@given(graphs())
def test_every_line_goes_right_from_its_origin_and_across_no_box(graph: tuple[list[Node], list[Edge]]) -> None:
    drawing = draw(*graph)
    boxes = {box.node.key: box for box in drawing.boxes}
    assert [line.edge for line in sorted(drawing.lines, key=lambda line: line.edge.end)] == sorted(
        graph[1], key=lambda edge: edge.end
    )
    for line in drawing.lines:
        start, end = boxes[line.edge.start], boxes[line.edge.end]
        assert line.points[0] == (start.x + WIDTH, start.y + HEIGHT // 2)
        assert line.points[-1] == (end.x, end.y + HEIGHT // 2)
        for before, after in pairwise(line.points):
            assert before[0] <= after[0]
            assert before[0] == after[0] or before[1] == after[1]
            assert min(before[1], after[1]) > 0
            assert not any(crosses(box, before, after) for box in drawing.boxes)


@given(graphs())
def test_the_order_of_links_changes_no_place(graph: tuple[list[Node], list[Edge]]) -> None:
    nodes, edges = graph
    shuffled = edges[::-1]
    places = {box.node.key: (box.x, box.y) for box in draw(nodes, edges).boxes}
    assert places == {box.node.key: (box.x, box.y) for box in draw(nodes, shuffled).boxes}


def test_a_claim_that_comes_back_thirty_times_stays_in_one_row() -> None:
    nodes = [node(number, number) for number in range(30)]
    edges = [Edge(start="k0", end=item.key, kind="repeat", says="repeats") for item in nodes[1:]]
    drawing = draw(nodes, edges)
    assert len({box.y for box in drawing.boxes}) == 1
    assert drawing.height < 3 * HEIGHT


def test_links_that_lead_nowhere_or_back_are_left_out() -> None:
    nodes = [node(0, 3), node(1, 3), node(2, 5)]
    edges = [
        Edge(start="k0", end="k1", kind="repeat", says="repeats"),
        Edge(start="k2", end="k0", kind="repeat", says="repeats"),
        Edge(start="k0", end="gone", kind="repeat", says="repeats"),
        Edge(start="k0", end="k2", kind="repeat", says="repeats"),
    ]
    assert [line.edge for line in draw(nodes, edges).lines] == [edges[3]]


def test_nothing_to_draw() -> None:
    assert draw([], []) == Drawing(width=16, height=16, columns=(), boxes=(), lines=())
