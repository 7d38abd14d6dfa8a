"""Small integer expressions: numbers of a template ("4*D/x") and conditions of a layout ("head_dim % 8 == 0")."""

import ast
import operator
import re

from . import GoldenError

_BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod}
_COMPARE = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _value(node, names, text):
    if isinstance(node, ast.Expression):
        return _value(node.body, names, text)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if names.get(node.id) is None:
            raise GoldenError(f"expression '{text}': '{node.id}' has no value here; known: {' '.join(sorted(names))}")
        return names[node.id]
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv)):
        a, b = _value(node.left, names, text), _value(node.right, names, text)
        if b == 0 or a % b:
            raise GoldenError(f"expression '{text}': {a} does not divide by {b}; choose a geometry where it does")
        return a // b
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        a, b = _value(node.left, names, text), _value(node.right, names, text)
        if isinstance(node.op, ast.Mod) and b == 0:
            raise GoldenError(f"expression '{text}': modulo by 0")
        return _BINARY[type(node.op)](a, b)
    if isinstance(node, ast.Compare):
        left = _value(node.left, names, text)
        for op, right_node in zip(node.ops, node.comparators):
            if type(op) not in _COMPARE:
                break
            right = _value(right_node, names, text)
            if not _COMPARE[type(op)](left, right):
                return False
            left = right
        else:
            return True
    if isinstance(node, ast.BoolOp):
        parts = [_value(v, names, text) for v in node.values]
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _value(node.operand, names, text)
    raise GoldenError(f"expression '{text}': expected numbers, names, + - * / % and comparisons")


def evaluate(text, names):
    """Value of `text`; a division must be exact. `&&`, `||` and `!` are accepted for and, or, not."""
    source = re.sub(r"!(?!=)", " not ", text.replace("&&", " and ").replace("||", " or "))
    try:
        tree = ast.parse(source.strip(), mode="eval")
    except (SyntaxError, ValueError):
        raise GoldenError(f"expression '{text}' cannot be read; expected e.g. '4*D/x' or 'head_dim % 8 == 0'") from None
    return _value(tree, names, text)
