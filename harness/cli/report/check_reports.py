"""Reads the reports of a run with parsers that are not ours and prints what they say, as JSON.

usage: check_reports.py DIRECTORY SCHEMA Keys: junit (figures, and what each case is), html (rows of the page's data,
links out, balance of tags), schema ("valid", "no jsonschema", or the first errors)."""

import html.parser
import json
import pathlib
import re
import sys
import xml.etree.ElementTree as ET

OPTIONAL_END = {"meta", "input", "br"}
# What Jenkins accepts: junit-10.xsd of its xUnit plug-in (read 2026-11-25; a validator agrees). Element -> attributes
# (those with * must be there), children.
JENKINS = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {
            "name*",
            "tests*",
            "failures*",
            "errors*",
            "group",
            "time",
            "skipped",
            "timestamp",
            "hostname",
            "id",
            "package",
            "file",
            "log",
            "url",
            "version",
        },
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), {"property"}),
    "property": ({"name*", "value*"}, set()),
    "testcase": (
        {"name*", "time", "classname", "group"},
        {
            "skipped",
            "error",
            "failure",
            "rerunFailure",
            "rerunError",
            "flakyFailure",
            "flakyError",
            "system-out",
            "system-err",
        },
    ),
    "failure": ({"type", "message"}, set()),
    "error": ({"type", "message"}, set()),
    "skipped": ({"type", "message"}, set()),
    **{
        rerun: ({"type*", "message"}, {"stackTrace", "system-out", "system-err"})
        for rerun in ("rerunFailure", "rerunError", "flakyFailure", "flakyError")
    },
    "stackTrace": (set(), set()),
    "system-out": (set(), set()),
    "system-err": (set(), set()),
}
SECONDS = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]{0,3})?")


def refused_by_jenkins(element):
    """The first thing that is not in the schema, or None."""
    attributes, children = JENKINS[element.tag]
    known = {name.rstrip("*") for name in attributes}
    if extra := sorted(set(element.attrib) - known):
        return f"<{element.tag}> has an attribute {extra[0]}"
    if lacking := [name for name in sorted(attributes) if name.endswith("*") and name[:-1] not in element.attrib]:
        return f"<{element.tag}> has no attribute {lacking[0][:-1]}"
    if element.tag != "testcase" and not SECONDS.fullmatch(element.get("time", "")):
        return f"<{element.tag}> has time {element.get('time')}"
    for child in element:
        if child.tag not in children:
            return f"<{element.tag}> has a child <{child.tag}>"
        if problem := refused_by_jenkins(child):
            return problem
    return None


def junit(path):
    root = ET.parse(path).getroot()
    suite = root.find("testsuite")
    cases = {}
    for case in suite.findall("testcase"):
        reruns = [child.tag for child in case if child.tag.startswith(("rerun", "flaky"))]
        inside = [child.tag for child in case if child.tag != "system-out" and child.tag not in reruns]
        known = case.findtext("system-out").split("\n---- ")[0]
        properties = dict(line.split(": ", 1) for line in known.splitlines())
        message = next((child.get("message") for child in case if child.tag in ("failure", "error", "skipped")), "")
        cases.setdefault(case.get("name"), []).append(
            {
                "kind": inside[0] if inside else "passed",
                "children": len(inside),
                "properties": properties,
                "message": message,
                "reruns": reruns,
            }
        )
    figures = {k: int(suite.get(k)) for k in ("tests", "failures", "errors", "skipped")}
    of_suite = {p.get("name"): p.get("value") for p in suite.find("properties")}
    return {"figures": figures, "cases": cases, "properties": of_suite, "refused": refused_by_jenkins(root)}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.problems, self.out, self.anchors, self.targets = [], [], [], set(), []
        self.in_data = False
        self.data = ""

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if "id" in attrs:
            if attrs["id"] in self.anchors:
                self.problems.append("id twice: " + attrs["id"])
            self.anchors.add(attrs["id"])
        for key in ("src", "href", "action", "data"):
            value = attrs.get(key)
            if value is not None and value.startswith("#"):
                self.targets.append(value[1:])
            elif value is not None:
                self.out.append(value)
        if tag not in OPTIONAL_END:
            self.open.append(tag)
        self.in_data = attrs.get("id") == "data"

    def handle_endtag(self, tag):
        if tag in OPTIONAL_END:
            return
        if not self.open or self.open.pop() != tag:
            self.problems.append("unbalanced </%s> at %s" % (tag, self.getpos()))

    def handle_data(self, data):
        if self.in_data:
            self.data += data


def rows(data):
    """The table of cases out of the page's data: [id, outcome, verdict, evidence, anchor of the cause] a row."""
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

    def words(column):
        numbers = [0] * data["n"]
        for i in range(data["n"] if column["w"] else 0):
            for c in column["v"][i * column["w"] : (i + 1) * column["w"]]:
                numbers[i] = numbers[i] * 64 + digits.index(c)
        return [column["d"][n] for n in numbers] if column["d"] else []

    ids, last = [], ""
    for one in data["ids"]:
        last = one if isinstance(one, str) else last[: one[0]] + one[1]
        ids.append(last)
    return [
        list(row)
        for row in zip(ids, *(words(data[key]) for key in ("outcome", "verdict", "evidence", "cause")), strict=True)
    ]


def page(path):
    parser = Page()
    text = path.read_text(encoding="utf-8")
    parser.feed(text)
    parser.close()
    dangling = [t for t in parser.targets if t not in parser.anchors]
    return {
        "rows": rows(json.loads(parser.data)),
        "links_out": parser.out,
        "problems": parser.problems + ["never closed: " + t for t in parser.open] + ["no target #" + t for t in dangling],
        "bytes": len(text.encode()),
        "controls": sum(ord(c) < 32 and c not in "\n\t" for c in text),
    }


def schema(results, path):
    try:
        import jsonschema
    except ImportError:
        return "no jsonschema"
    results = dict(results, results=results["results"][:200])  # jsonschema takes a millisecond a result
    validator = jsonschema.Draft202012Validator(json.loads(path.read_text()))
    errors = ["%s: %s" % (e.json_path, e.message[:200]) for e in validator.iter_errors(results)]
    return "valid" if not errors else "; ".join(errors[:5])


def main():
    directory, schema_path = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    results = json.loads((directory / "results.json").read_text(encoding="utf-8"))
    print(
        json.dumps(
            {
                "junit": junit(directory / "junit.xml"),
                "html": page(directory / "index.html"),
                "schema": schema(results, schema_path),
            }
        )
    )


main()
