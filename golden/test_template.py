"""The parser of layout templates: trees, and one clear error for each kind of wrong text."""

import pytest

from kvgold import GoldenError
from kvgold.expr import evaluate
from kvgold.template import Leaf, Mode, leaves, parse


def test_flat():
    (region,) = parse("L x K B N H C")
    assert region.lists == ("L",)
    assert region.part.modes == tuple(map(Mode, "KBNHC"))
    assert region.part.leaf == Leaf("data")


def test_tree():
    (region,) = parse("L x B { N { C=0..448 :e4m3fn ; C=448..512 :bf16 } ; N { scale C=0..7 :e8m0 ; pad 1 } }")
    found = list(leaves(region.part))
    assert [leaf for _, leaf in found] == [
        Leaf("data", "e4m3fn"),
        Leaf("data", "bf16"),
        Leaf("scale", "e8m0"),
        Leaf(pad="1"),
    ]
    assert found[1][0] == (Mode("B"), Mode("N"), Mode("C", "=", lo="448", hi="512"))


def test_two_regions_splits_component_word_and_nibble_order():
    first, second = parse("K x B N H C/x C%x :int4.hi & scale B H N C")
    assert first.lists == ("K",)
    assert first.part.modes[3:] == (Mode("C", "/", "x"), Mode("C", "%", "x"))
    assert first.part.leaf == Leaf("data", "int4", True)
    assert second.lists == () and second.part.leaf.component == "scale"


def test_component_before_braces_is_inherited():
    (region,) = parse("scale B { K=0 N H C ; K=1 H N C }")
    assert {leaf.component for _, leaf in leaves(region.part)} == {"scale"}


@pytest.mark.parametrize(
    "text",
    [
        "L x K B N H C",
        "L x { K=0 B H C/x N C%x ; K=1 B H C N }",
        "L x B { N { C=0..448 :e4m3fn ; C=448..512 :bf16 } ; N { C=0..7 scale :e8m0 ; pad 1 } }",
        "scale L x B N H C & L x K B N H C/x C%x :int4.hi",
    ],
)
def test_text_round_trip(text):
    regions = parse(text)
    assert parse(" & ".join(region.text() for region in regions)) == regions


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "column 1: expected an axis"),
        ("L x", "expected an axis"),
        ("L x K B N H Q", "column 13: expected a mode"),
        ("L x L x B N", "column 5: expected another list axis than L"),
        ("B { N C", "expected '}' or ';'"),
        ("B N C }", "found '}'"),
        ("B N C :fp7", "expected a dtype"),
        ("B { N C ; }", "expected an axis"),
        ("B N C=..4", "found '=..4'"),
        ("scale scale C", "only one component word"),
        ("B N C &", "expected an axis"),
        ("B N scale C", "expected a mode"),
        ("B N pad", "found 'pad'"),
    ],
)
def test_errors_name_the_column(text, says):
    with pytest.raises(GoldenError, match="column") as error:
        parse(text)
    assert says in str(error.value)


def test_expressions():
    names = {"D": 64, "x": 8, "head_dim": 40}
    assert evaluate("2*D/x+1", names) == 17
    assert evaluate("head_dim % 8 == 0 and D >= 64", names) is True
    assert evaluate("head_dim % 16 == 0 || !(D < 64)", names) is True


@pytest.mark.parametrize(
    "text, says",
    [
        ("D/3", "does not divide"),
        ("Q", "'Q' has no value"),
        ("D/", "cannot be read"),
        ("__import__('os')", "expected numbers"),
        ("D % 0", "modulo by 0"),
        ("D/0", "does not divide"),
        ("'a'", "expected numbers"),
        ("D < 1 < Q", None),
    ],
)
def test_expression_errors(text, says):
    if says is None:
        assert evaluate(text, {"D": 64}) is False
        return
    with pytest.raises(GoldenError) as error:
        evaluate(text, {"D": 64})
    assert says in str(error.value)
