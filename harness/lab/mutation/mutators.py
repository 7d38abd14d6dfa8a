"""Mutants of a C++ source file: operators, bounds, constants, skipped checks. Found in its syntax tree and compiled
in together behind switches (mutant.hpp), so that a file is compiled once, not once per mutant."""

from __future__ import annotations

from dataclasses import dataclass

import tree_sitter_cpp
from tree_sitter import Language, Node, Parser

PARSER = Parser(Language(tree_sitter_cpp.language()))

# operator -> its replacements, both as function objects
BINARY = {
    "<": ("std::less<>", "std::less_equal<>", "<="),
    "<=": ("std::less_equal<>", "std::less<>", "<"),
    ">": ("std::greater<>", "std::greater_equal<>", ">="),
    ">=": ("std::greater_equal<>", "std::greater<>", ">"),
    "==": ("std::equal_to<>", "std::not_equal_to<>", "!="),
    "!=": ("std::not_equal_to<>", "std::equal_to<>", "=="),
    "+": ("std::plus<>", "std::minus<>", "-"),
    "-": ("std::minus<>", "std::plus<>", "+"),
    "*": ("std::multiplies<>", "std::plus<>", "+"),
    "/": ("std::divides<>", "std::multiplies<>", "*"),
    "%": ("std::modulus<>", "std::divides<>", "/"),
    "&": ("std::bit_and<>", "std::bit_or<>", "|"),
    "|": ("std::bit_or<>", "std::bit_and<>", "&"),
}
SHORT = {"&&": ("both", "||"), "||": ("either", "&&")}
# Places that need a compile-time value.
CONSTANT = {
    "template_argument_list",
    "array_declarator",
    "static_assert_declaration",
    "enumerator",
    "bitfield_clause",
    "preproc_if",
    "preproc_def",
    "preproc_include",
    "attribute_declaration",
    "noexcept",
    "requires_clause",
}


@dataclass
class Site:
    number: int
    path: str
    line: int
    kind: str  # operator, constant, skipped check, skipped statement, bound
    source: str  # the mutated expression or statement, on one line
    becomes: str

    @property
    def key(self) -> str:
        return f"{self.path}: {self.source} -> {self.becomes}"


def text(node: Node) -> str:
    return node.text.decode()


def one_line(words: str, limit: int = 100) -> str:
    words = " ".join(words.split()).replace("|", "\u2223")
    return words if len(words) <= limit else words[: limit - 3] + "..."


class Mutator:
    """Enumerates the sites of a file; renders it with the chosen ones."""

    def __init__(self, path: str, source: bytes, first: int):
        self.path, self.tree, self.sites, self.next = path, PARSER.parse(source), {}, first
        self.source = source
        self.chosen: set[int] = set()
        self.numbers: dict[tuple, int] = {}
        self.render(self.tree.root_node)

    def site(self, node: Node, kind: str, becomes: str, shown: str = "") -> int | None:
        """The number of the mutant if it is chosen."""
        key = (node.start_byte, node.end_byte, kind)
        if key not in self.numbers:
            self.numbers[key] = self.next
            self.sites[self.next] = Site(
                self.next, self.path, node.start_point[0] + 1, kind, one_line(shown or text(node)), becomes
            )
            self.next += 1
        number = self.numbers[key]
        return number if number in self.chosen else None

    def runtime(self, node: Node) -> bool:
        """Does the node run in the body of a function?"""
        inside = False
        while node is not None:
            if node.type in CONSTANT or node.type in ("case_statement", "throw_statement"):  # error texts are not mutated
                return False
            if node.type in ("declaration", "field_declaration", "function_definition", "lambda_expression") and any(
                child.type in ("type_qualifier", "storage_class_specifier") and text(child) in ("constexpr", "consteval")
                for child in node.children
            ):
                return False
            if node.type == "compound_statement" and node.parent is not None and node.parent.type == "function_definition":
                inside = True
            node = node.parent
        return inside

    def children(self, node: Node) -> str:
        out, at = [], node.start_byte
        for child in node.children:
            out += [self.source[at : child.start_byte].decode(), self.render(child)]
            at = child.end_byte
        return "".join([*out, self.source[at : node.end_byte].decode()])

    def render(self, node: Node) -> str:
        if not node.children and node.type not in ("number_literal", "true", "false"):
            return text(node)
        plain = self.children(node)
        if node.type in (
            "binary_expression",
            "number_literal",
            "true",
            "false",
            "if_statement",
            "expression_statement",
            "break_statement",
            "continue_statement",
            "call_expression",
        ) and self.runtime(node):
            return getattr(self, node.type)(node, plain)
        return plain

    def binary_expression(self, node: Node, plain: str) -> str:
        left, right, op = (
            node.child_by_field_name("left"),
            node.child_by_field_name("right"),
            text(node.child_by_field_name("operator")),
        )
        if op in BINARY and "string_literal" not in {node.type for node in (left, right)}:
            real, other, becomes = BINARY[op]
            kind = "bound" if op in ("<", "<=", ">", ">=") else "operator"
            if (number := self.site(node, kind, f"{op} becomes {becomes}")) is not None:
                return f"::kvcts::mutant::binary<{real}, {other}>({number}, {self.render(left)}, {self.render(right)})"
        elif op in SHORT:
            function, becomes = SHORT[op]
            if (number := self.site(node, "operator", f"{op} becomes {becomes}")) is not None:
                return (
                    f"::kvcts::mutant::{function}({number}, {self.render(left)}, [&] {{ return "
                    f"static_cast<bool>({self.render(right)}); }})"
                )
        return plain

    def number_literal(self, node: Node, plain: str) -> str:
        if any(c in plain for c in ".eE") and not plain.startswith("0x"):
            return plain
        number = self.site(node, "constant", f"{plain} becomes {plain} + 1", one_line(text(node.parent)))
        return plain if number is None else f"::kvcts::mutant::more({number}, {plain})"

    def true(self, node: Node, plain: str) -> str:
        number = self.site(node, "constant", "true becomes false", one_line(text(node.parent)))
        return plain if number is None else f"(!::kvcts::mutant::is({number}))"

    def false(self, node: Node, plain: str) -> str:
        number = self.site(node, "constant", "false becomes true", one_line(text(node.parent)))
        return plain if number is None else f"(::kvcts::mutant::is({number}))"

    def if_statement(self, node: Node, plain: str) -> str:
        condition = node.child_by_field_name("condition")
        value = condition.child_by_field_name("value") if condition is not None else None
        if (
            value is None
            or value.type == "declaration"
            or any(child.type == "init_statement" for child in condition.children)
            or text(node).startswith("if constexpr")
        ):
            return plain
        number = self.site(node, "skipped check", "never true", "if " + text(condition))
        if number is None:
            return plain
        # Each child again, the condition with its switch first.
        out, at = [], node.start_byte
        for child in node.children:
            out.append(self.source[at : child.start_byte].decode())
            out.append(
                f"(!::kvcts::mutant::is({number}) && ({self.render(value)}))" if child == condition else self.render(child)
            )
            at = child.end_byte
        return "".join(out)

    def statement(self, node: Node, plain: str) -> str:
        number = self.site(node, "skipped statement", "left out")
        return plain if number is None else f"{{ if (!::kvcts::mutant::is({number})) {{ {plain} }} }}"

    def expression_statement(self, node: Node, plain: str) -> str:
        return self.statement(node, plain) if len(node.children) > 1 else plain

    break_statement = continue_statement = statement

    def call_expression(self, node: Node, plain: str) -> str:
        function = text(node.child_by_field_name("function"))
        for name, other in (
            ("std::min", "std::max"),
            ("std::max", "std::min"),
            ("std::all_of", "std::any_of"),
            ("std::any_of", "std::all_of"),
        ):
            if function == name or function.startswith(name + "<"):
                if (number := self.site(node, "operator", f"{name} becomes {other}")) is not None:
                    return f"(::kvcts::mutant::is({number}) ? {plain.replace(name, other, 1)} : {plain})"
        return plain

    def rendered(self, chosen: set[int]) -> str:
        self.chosen = chosen
        return '#include "harness/lab/mutation/mutant.hpp"\n#line 1\n' + self.render(self.tree.root_node)
