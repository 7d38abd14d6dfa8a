"""`kvcts report` on damaged runs: one line that says what is wrong, status 2, and no file written."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import BUILD, kvcts, need_program  # noqa: E402

SAMPLE = BUILD / "bin" / "kvcts_report_sample"


class ErrorsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="kvcts-errors-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.run_folder = self.folder / "run"
        subprocess.run([str(SAMPLE), "write", str(self.run_folder), "20"], check=True, timeout=60)

    def refused(self, *says: str) -> None:
        for options in (
            ["--out", str(self.folder / "out")],
            ["--compat", "--out", str(self.folder / "out")],
            ["--json"],
            [],
        ):
            ended = kvcts("report", str(self.run_folder), *options)
            self.assertEqual(ended.status, 2, ended)
            self.assertEqual(len(ended.err.splitlines()), 1, ended.err)
            for part in says:
                self.assertIn(part, ended.err)
        self.assertFalse((self.folder / "out").exists() and list((self.folder / "out").iterdir()), "nothing is written")

    def test_a_sound_run_has_its_reports(self):
        self.assertIn(kvcts("report", str(self.run_folder), "--out", str(self.folder / "out")).status, (1, 3))
        self.assertEqual(kvcts("report", str(self.run_folder), "--compat").status, 0)
        self.assertTrue((self.run_folder / "compatibility.md").read_text().startswith("# Compatibility"))

    def test_a_truncated_store(self):
        store = self.run_folder / "store.db"
        store.write_bytes(store.read_bytes()[: store.stat().st_size // 2])
        self.refused("store.db", "damaged")

    def test_a_store_of_a_newer_version(self):
        with sqlite3.connect(self.run_folder / "store.db") as db:
            db.execute("PRAGMA user_version=9")
        self.refused("store version 9", "use that version")

    def test_another_file_in_its_place(self):
        (self.run_folder / "store.db").write_text("no database")
        self.refused("store.db")

    def test_no_run_at_all(self):
        (self.run_folder / "store.db").unlink()
        self.refused("not found")

    def test_a_changed_result(self):
        with sqlite3.connect(self.run_folder / "store.db") as db:
            db.execute("UPDATE executions SET outcome = 'PASS' WHERE outcome = 'FAIL'")
        self.refused("damaged")


if __name__ == "__main__":
    need_program()
    if not SAMPLE.exists():
        print(f"skipped: {SAMPLE} is not built")
        sys.exit(77)
    unittest.main(verbosity=1)
