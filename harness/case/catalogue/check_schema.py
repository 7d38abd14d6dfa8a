"""The generated JSON Schemas accept what the program accepts: every YAML file of cases/ is valid by the schema of its
kind, and a document with a wrong key is not. Editors and other programs use the schemas; the program itself uses the
tables from which they are written.

    check_schema.py
"""

from __future__ import annotations

import copy
import json
import os
import re
import sys
from pathlib import Path

try:
    import jsonschema
    import yaml
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

ROOT = Path(__file__).resolve().parents[3]
CASES = ROOT / "cases"
SCHEMAS = Path(os.environ.get("KVCTS_BINARY_DIR", ROOT / "build")) / "share" / "kvcts" / "schema"
FOLDERS = {
    "case": "seeds readers crash faults field museum engine-faults vllm sglang stores lmcache history".split(),
    "layout": ["layouts"],
    "dtype": ["dtypes"],
    "geometry": ["geometries"],
    "backend": ["backends"],
    "arch": ["archs"],
    "connector": ["connectors"],
    "engine": ["engines"],
    "constraint": ["constraints"],
    "suite": ["suites"],
    "waiver": ["waivers"],
    "rule": ["rules"],
    "claim": ["claims"],
    "saboteur": ["saboteurs"],
    "profile": ["profiles"],
}


class Core(yaml.SafeLoader):
    """YAML 1.2 core schema, as the program reads it: no dates, no yes and no, no octal and sexagesimal numbers."""


Core.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag.rsplit(":", 1)[-1] not in ("timestamp", "bool", "int")]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Core.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false)$"), list("tf"))
Core.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^(-?[0-9]+|0x[0-9a-fA-F]+)$"), list("-0123456789"))


def mappings(value, schema: dict):
    """The document, and for a scripted case the body of its first step: each must refuse a wrong key."""
    yield value
    for step in value.get("steps", [])[:1]:
        if isinstance(step, dict) and isinstance(body := next(iter(step.values())), dict):
            yield body


def main() -> int:
    problems, documents, refused = [], 0, 0
    for kind, folders in FOLDERS.items():
        schema = json.loads((SCHEMAS / f"{kind}.schema.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        for path in (p for folder in folders for p in sorted((CASES / folder).glob("*.yaml"))):
            for document in yaml.load_all(path.read_text(), Core):
                documents += 1
                if error := jsonschema.exceptions.best_match(validator.iter_errors(document)):
                    problems.append(
                        f"{path.relative_to(CASES)}: {document.get(kind)}: {error.json_path}: {error.message[:200]}"
                    )
                broken = copy.deepcopy(document)
                for mapping in mappings(broken, schema):
                    mapping["no_such_key"] = 1
                    refused += 1
                    if validator.is_valid(broken):
                        problems.append(
                            f"{path.relative_to(CASES)}: {document.get(kind)}: a wrong key is accepted: {sorted(mapping)}"
                        )
                    del mapping["no_such_key"]
    if documents < 100 or refused < documents:
        problems.append(f"only {documents} documents were checked")
    print("\n".join(problems))
    print(f"{documents} documents, {refused} wrong keys refused" if not problems else f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
