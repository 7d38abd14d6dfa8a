"""Reads the reports of a run with parsers that are not ours and prints what they say, as JSON.

usage: check_reports.py DIRECTORY SCHEMA
Keys: junit (figures, and what each case is), html (rows of the table, links out, balance of tags), schema ("valid", "no jsonschema", or
the first errors).
"""

import html.parser
import json
import pathlib
import sys
import xml.etree.ElementTree as ET

OPTIONAL_END = {"tr", "td", "th", "li", "p", "dt", "dd", "thead", "tbody", "meta", "input", "br"}


def junit(path):
    root = ET.parse(path).getroot()
    suite = root.find("testsuite")
    cases = {}
    for case in suite.findall("testcase"):
        inside = [child.tag for child in case if child.tag not in ("properties", "system-out")]
        properties = {p.get("name"): p.get("value") for p in case.find("properties")}
        message = next((child.get("message") for child in case if child.tag in ("failure", "error", "skipped")), "")
        cases.setdefault(case.get("name"), []).append(
            {"kind": inside[0] if inside else "passed", "children": len(inside), "properties": properties, "message": message}
        )
    figures = {k: int(suite.get(k)) for k in ("tests", "failures", "errors", "skipped")}
    return {"figures": figures, "cases": cases}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.problems, self.out, self.rows, self.anchors, self.targets = [], [], [], [], set(), []
        self.in_table = self.in_head = False
        self.cell = None
        self.title = ""

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
        if attrs.get("id") == "all":
            self.in_table = True
        if self.in_table and tag == "tbody":
            self.in_head = True
        if self.in_head and tag == "tr":
            self.rows.append([])
        if self.in_head and tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        if tag == "table":
            self.in_table = self.in_head = False
        if tag in OPTIONAL_END:
            return
        if not self.open or self.open.pop() != tag:
            self.problems.append("unbalanced </%s> at %s" % (tag, self.getpos()))

    def handle_data(self, data):
        if self.in_head and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def page(path):
    parser = Page()
    text = path.read_text(encoding="utf-8")
    parser.feed(text)
    parser.close()
    dangling = [t for t in parser.targets if t not in parser.anchors]
    return {
        "rows": [[cell.strip() for cell in row] for row in parser.rows],
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
