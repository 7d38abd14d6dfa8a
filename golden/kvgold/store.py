"""The folder of golden files: its manifest, adding, checking, and never rewriting silently."""

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from . import FORMAT_VERSION, TAG_VERSION, GoldenError, catalogue, h5file

MANIFEST = "MANIFEST.json"


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@dataclass
class Made:
    """The content that a layout should have, and why dtypes are missing."""

    layout: object
    arrays: dict = field(default_factory=dict)
    attributes: dict = field(default_factory=dict)
    dtypes: dict = field(default_factory=dict)  # dtype -> geometry name
    refused: dict = field(default_factory=dict)  # dtype -> reason


class Store:
    """golden/ and the catalogue it is made from."""

    def __init__(self, golden, cases):
        self.golden, self.cases = Path(golden), Path(cases)
        self.plan = catalogue.load_plan(self.golden / "plan.yaml")
        self.layouts, self.unreadable = catalogue.load_layouts(self.cases / "layouts")
        self.schemes = catalogue.load_schemes(self.cases / "dtypes")
        self.manifest = self.load_manifest()

    # ---- manifest ---------------------------------------------------------------------------------------------------

    def load_manifest(self):
        path = self.golden / MANIFEST
        if not path.exists():
            return {"format": FORMAT_VERSION, "tag": TAG_VERSION, "files": {}}
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest.get("format") != FORMAT_VERSION:
            raise GoldenError(f"{MANIFEST} has format {manifest.get('format')}, this generator writes {FORMAT_VERSION}")
        return manifest

    def save_manifest(self):
        path = self.golden / MANIFEST
        self.manifest["files"] = dict(sorted(self.manifest["files"].items()))
        new = path.with_suffix(".new")
        new.write_text(json.dumps(self.manifest, indent=1) + "\n", encoding="utf-8")
        os.replace(new, path)

    # ---- making -----------------------------------------------------------------------------------------------------

    def make(self, name):
        """Content of one layout's file, in memory."""
        made = Made(self.layouts[name])
        entries = []
        for scheme in self.schemes.values():
            try:
                geometry, cache = catalogue.place(made.layout, scheme, self.plan)
                entries.append((scheme, geometry, cache))
                made.dtypes[scheme.name] = geometry.name
            except GoldenError as error:
                made.refused[scheme.name] = str(error)
        if entries:
            made.arrays, made.attributes = h5file.content(made.layout, entries, self.plan.key)
        return made

    def file_of(self, name):
        """The file that holds a layout, or None. Layouts with equal template and content share one."""
        for file, entry in self.manifest["files"].items():
            if name in entry["layouts"]:
                return file
        return None

    def entry(self, name, made):
        """The manifest entry for a layout's content (without the file's own hash)."""
        digests = {path: h5file.digest(array) for path, array in made.arrays.items()}
        return {
            "layouts": [name],
            "template": made.layout.template,
            "attributes": h5file.attribute_digest(made.attributes),
            "dtypes": h5file.dtype_digests(digests, made.dtypes),
        }

    def add(self, name, made):
        """Adds a layout: to the file that already has its content, or to a new file. Returns the file's name. Rewrites
        nothing."""
        if not made.arrays:
            raise GoldenError(f"{name}: no dtype of the catalogue fits at any geometry of plan.yaml; --list says why")
        target = self.golden / f"{name}.h5"
        if self.file_of(name) or target.exists() or target.name in self.manifest["files"]:
            raise GoldenError(
                f"{self.file_of(name) or target.name} exists; golden files are never rewritten silently (use "
                f"--replace {name})"
            )
        entry = self.entry(name, made)
        for file, other in self.manifest["files"].items():
            if all(other[key] == entry[key] for key in ("template", "attributes", "dtypes")):
                other["layouts"] = sorted(other["layouts"] + [name])
                self.save_manifest()
                return file
        new = target.with_suffix(".new")
        first = h5file.write(new, made.arrays, made.attributes)
        os.replace(new, target)
        self.manifest["files"][target.name] = {
            "sha256": sha256(target),
            "bytes": target.stat().st_size,
            **entry,
            "versions": h5file.versions(),
            "datasets": {path: key for key, path in first.items()},
        }
        self.save_manifest()
        return target.name

    def remove(self, names):
        """Removes layouts from the manifest; a file goes with its last layout. A file keeps its name, so it cannot
        outlive the layout that it is named after."""
        for name in names:
            file = self.file_of(name)
            others = [n for n in self.manifest["files"][file]["layouts"] if n not in names] if file else []
            if file == f"{name}.h5" and others:
                raise GoldenError(
                    f"{file} is shared by {' '.join(others)}; replace them together: --replace {name} {' '.join(others)}"
                )
        for name in names:
            file = self.file_of(name)
            if file:
                self.manifest["files"][file]["layouts"].remove(name)
                if not self.manifest["files"][file]["layouts"]:
                    del self.manifest["files"][file]
                    (self.golden / file).unlink(missing_ok=True)
        self.save_manifest()

    # ---- checking ---------------------------------------------------------------------------------------------------

    def digests(self, file):
        """{path: digest} of a file's data sets, recomputed from their content."""
        return {path: h5file.digest(array) for path, array in h5file.read_arrays(self.golden / file).items()}

    def check(self, file):
        """Faults of one golden file against its manifest entry and against freshly made content; empty when all agree."""
        entry, path = self.manifest["files"].get(file), self.golden / file
        if entry is None:
            return [f"{file} is not in {MANIFEST}"]
        if not path.exists():
            return [f"{file} is in {MANIFEST} but not in the folder"]
        if sha256(path) != entry["sha256"]:
            return [f"{file}: SHA-256 is {sha256(path)}, {MANIFEST} says {entry['sha256']}; restore it from version control"]
        found, attributes = self.digests(file), h5file.read_attributes(path)
        faults = [
            f"{file}{p}: content digest differs from {MANIFEST}"
            for p, key in entry["datasets"].items()
            if found.get(p) != key
        ]
        if h5file.attribute_digest(attributes) != entry["attributes"]:
            faults.append(f"{file}: its attributes are not those of {MANIFEST}")
        for name in entry["layouts"]:
            faults += self.check_layout(file, entry, name, found, attributes)
        return faults

    def check_layout(self, file, entry, name, found, attributes):
        if name not in self.layouts:
            return [f"{file}: cases/layouts/{name}.yaml is gone or unreadable"]
        made, faults = self.make(name), []
        if made.layout.template != entry["template"]:
            faults.append(f"{file}: made from template '{entry['template']}', {name} now says '{made.layout.template}'")
        faults += [f"{file}{line}" for line in difference(found, {p: h5file.digest(a) for p, a in made.arrays.items()})]
        if (
            not faults
            and made.attributes
            and h5file.attribute_digest(made.attributes) != h5file.attribute_digest(attributes)
        ):
            faults.append(f"{file}: its attributes are not those that {name} has now")
        return faults


def difference(old, new):
    """Lines that say how two {path: digest} differ."""
    lines = [f"{p}: only in the file ({old[p][:12]})" for p in sorted(old.keys() - new.keys())]
    lines += [f"{p}: only in the new content ({new[p][:12]})" for p in sorted(new.keys() - old.keys())]
    return lines + [
        f"{p}: {old[p][:12]} in the file, {new[p][:12]} made now"
        for p in sorted(old.keys() & new.keys())
        if old[p] != new[p]
    ]
