"""The page in a real browser: it needs nothing from outside, its filter answers as the command line does, failures
open, drawings are there, buttons copy, it can be used by keyboard, on a phone, without scripts, and with 10,000 cases.

Runs are made up by kvcts_report_sample. Without a browser everything is skipped (77): ./run_suite.sh --browser
self-test installs one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
import browser  # noqa: E402
from kvtest import BUILD, KVCTS, ROOT, need_program  # noqa: E402

SAMPLE = BUILD / "bin" / "kvcts_report_sample"
HERE = Path(__file__).resolve().parent
MOST_BYTES = 5_000_000


def sample(*argv: str, given: str = "") -> str:
    done = subprocess.run([str(SAMPLE), *argv], input=given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def report(run: Path, out: Path, *options: str) -> Path:
    done = subprocess.run(
        [str(KVCTS), "report", str(run), "--out", str(out), *options], capture_output=True, text=True, timeout=120
    )
    assert done.returncode in (0, 1, 3), done.stderr
    return out / "index.html"


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="kvcts-page-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.run_folder = Path(cls.folder.name) / "run"
        sample("write", str(cls.run_folder))
        cls.file = report(cls.run_folder, Path(cls.folder.name) / "out")
        cls.browser = cls.enterClassContext(browser.Browser())
        cls.page = cls.browser.open(cls.file)

    def setUp(self):
        self.filter("")

    def filter(self, text: str, page=None) -> None:
        (page or self.page).evaluate(
            f"(() => {{ const w = document.getElementById('where'); w.value = {json.dumps(text)}; "
            f"w.form.requestSubmit(); }})()"
        )

    def value(self, expression: str):
        return self.page.evaluate(expression)

    # ---- the page as a whole ----

    def test_asks_for_nothing_and_complains_of_nothing(self):
        self.assertEqual([u for u in self.page.requests if not u.startswith("file:")], [])
        self.assertEqual(len(self.page.requests), 1)
        self.assertEqual(self.page.problems, [])

    def test_says_the_verdict_first(self):
        self.assertIn("The suite itself failed in", self.value("document.querySelector('h1').innerText"))
        self.assertLess(self.value("document.querySelector('h1').getBoundingClientRect().bottom"), 200)

    def test_every_outcome_is_there(self):
        outcomes = {"PASS", "FAIL", "REFUSED", "HANG", "CRASH", "FLAKY", "UNSUPPORTED", "SKIPPED", "NOT_RUN", "ERROR"}
        self.assertEqual(set(self.value("kvcts.run.outcome.words")), outcomes)
        self.assertEqual(
            set(
                self.value(
                    "[...document.querySelectorAll('#counts ~ .figures > :first-child tbody th')].map(x => x.textContent)"
                )
            ),
            outcomes,
        )
        self.assertEqual(set(self.value("kvcts.run.evidence.words")), {"", "executed", "compiled", "modelled"})

    def test_counts_agree_with_results_json(self):
        results = json.loads((self.file.parent / "results.json").read_text())
        self.assertEqual(self.value("kvcts.run.n"), results["counts"]["planned"])
        self.assertEqual(self.value("kvcts.run.ids"), [r["id"] for r in results["results"]])
        self.assertEqual(
            self.value("[...Array(kvcts.run.n).keys()].map(i => kvcts.run.outcome.of(i))"),
            [r["outcome"] for r in results["results"]],
        )
        self.assertEqual(
            self.value("[...Array(kvcts.run.n).keys()].filter(i => kvcts.run.ran.of(i)).length"),
            sum(e["executions"] for e in results["counts"]["evidence"].values()),
        )

    def test_packages_are_compact_and_no_version_breaks(self):
        for width in (1400, 390):
            page = self.browser.open(self.file, width=width)
            lines, height, wide = page.evaluate("""(() => { const all = [...document.querySelectorAll('.items .version')];
              return [all.map(v => v.getClientRects().length), document.querySelector('.items').offsetHeight,
                document.documentElement.scrollWidth]; })()""")
            self.assertEqual(lines, [1] * 41)
            self.assertLess(height, 700 if width == 1400 else 1000)
            self.assertLessEqual(wide, width)
            page.close()

    def test_every_class_links_to_its_explanation(self):
        links = self.value("[...document.querySelectorAll('.cause h3 a')].map(a => a.getAttribute('href'))")
        self.assertIn("#class-axis-permuted", links)
        self.assertEqual(self.value("[...new Set(kvcts.run.class.words)].filter(c => c && !document.getElementById("
                                    "'class-' + c))"), [])  # fmt: skip
        said = json.loads(subprocess.run([str(KVCTS), "explain", "axis-permuted", "--json"], capture_output=True,
                                         text=True, timeout=60).stdout)[0]  # fmt: skip
        self.assertEqual(self.value("document.querySelector('#class-axis-permuted + dd').innerText"),
                         said["meaning"] + " " + said["advice"])  # fmt: skip

    # ---- the filter ----

    def test_fields_of_the_filter_have_room_for_their_words(self):
        for width in (1400, 390):
            page = self.browser.open(self.file, width=width)
            placeholder, room, choice = page.evaluate("""(() => { const input = document.getElementById('by-text'),
              pen = document.createElement('canvas').getContext('2d'), style = getComputedStyle(input);
              pen.font = style.font;
              return [pen.measureText(input.placeholder).width, input.clientWidth - parseFloat(style.paddingLeft) -
                parseFloat(style.paddingRight), document.getElementById('by-class').offsetWidth]; })()""")
            self.assertLess(placeholder + 20, room)  # 20: the cross that empties the field
            self.assertGreater(choice, 150)
            page.close()

    def test_expressions_mean_what_the_command_line_means(self):
        lines = [line for line in (HERE / "expressions.txt").read_text().splitlines() if line]
        expected = json.loads(sample("where", str(self.run_folder), given="\n".join(lines)))
        found = self.value(
            """(lines => lines.map(expression => {
          try { return {expression, rows: kvcts.select(kvcts.run, expression)}; }
          catch (problem) { if (!(problem instanceof kvcts.ExpressionError)) throw problem;
            return {expression, error: problem.message}; }
        }))(%s)"""
            % json.dumps(lines)
        )
        for want, got in zip(expected, found, strict=True):
            with self.subTest(want["expression"]):
                self.assertEqual(got, want)
        self.assertGreater(sum("error" in e for e in expected), 30)
        self.assertGreater(sum(0 < len(e.get("rows", [])) < 500 for e in expected), 25)

    def test_random_expressions_mean_the_same(self):
        import random

        pick = random.Random(7)
        pieces = [
            "dtype",
            " == ",
            "bf16",
            "&&",
            "||",
            "!",
            "(",
            ")",
            "arch",
            "<",
            "sm_80",
            "geometry.heads",
            "%",
            " in ",
            "[",
            "]",
            ",",
            "~",
            "*",
            '"x"',
            "1",
            "-",
            "+",
            "/",
            " ",
            "producer.dtypes",
            "id",
            "arch.tma",
            "'",
            "=",
            "pbs",
            "0x",
            ".",
            "true",
            ">=",
            "op == read",
            "ptp",
            "7",
            "same",
        ]
        lines = ["".join(pick.choice(pieces) for _ in range(pick.randint(1, 9))) for _ in range(3000)]
        lines = [line for line in lines if line.strip()]
        expected = json.loads(sample("where", str(self.run_folder), given="\n".join(lines)))
        found = self.value(
            "(lines => lines.map(e => { try { return kvcts.select(kvcts.run, e).length; } catch (p) { return "
            "p.message; } }))(%s)" % json.dumps(lines)
        )
        wrong = [
            (w, g) for w, g in zip(expected, found, strict=True) if g != (w["error"] if "error" in w else len(w["rows"]))
        ]
        self.assertEqual(wrong[:3], [])
        self.assertGreater(sum("rows" in e for e in expected), 10)

    def test_filter_narrows_every_view(self):
        self.filter("dtype == nvfp4")
        rows = self.value("kvcts.rows.length")
        self.assertTrue(0 < rows < self.value("kvcts.run.n"))
        self.assertIn(f"{rows} of", self.value("document.getElementById('count').textContent"))
        self.assertIn(f"of {rows} case", self.value("document.querySelector('.pager').innerText"))
        self.assertTrue(
            all(
                "nvfp4" in row
                for row in self.value("[...document.querySelectorAll('.cases tbody th')].map(x => x.innerText)")
            )
        )
        self.assertEqual(
            self.value("document.querySelector('#where-line pre').textContent"),
            "kvcts list --suite sample (made up) --where 'dtype == nvfp4'",
        )

    def test_a_wrong_filter_says_what_is_wrong_and_keeps_the_rows(self):
        before = self.value("kvcts.rows.length")
        self.filter("dtype == bf61")
        said = self.value("document.getElementById('where-error').innerText")
        self.assertIn("column 10: expected a value that the left can have, found 'bf61'; did you mean 'bf16'?", said)
        self.assertIn("         ^", said)
        self.assertEqual(self.value("kvcts.rows.length"), before)
        self.assertEqual(self.value("document.getElementById('where').getAttribute('aria-invalid')"), "true")
        self.filter("dtype == bf16")
        self.assertTrue(self.value("document.getElementById('where-error').hidden"))

    def pick(self, page=None, **fields: str) -> list[int]:
        """Sets fields of the filter beside the expression, as a person does; the rows that are left."""
        (page or self.page).evaluate(
            """(fields => { for (const [key,
              value] of Object.entries(fields)) { const f = document.getElementById('by-' + key); f.value = value;
              if (f.value !== value) throw Error(key + ' offers no ' + value);
          f.dispatchEvent(new Event(key === 'text' ? 'input' : 'change')); } })(%s)"""
            % json.dumps(fields)
        )
        (page or self.page).evaluate("new Promise(done => setTimeout(done, 250))")
        return (page or self.page).evaluate("kvcts.rows")

    def test_filters_by_verdict_outcome_class_and_text(self):
        results = json.loads((self.file.parent / "results.json").read_text())["results"]

        def rows(keep) -> list[int]:
            return [i for i, result in enumerate(results) if keep(result)]

        self.assertEqual(self.pick(outcome="HANG"), rows(lambda r: r["outcome"] == "HANG"))
        self.assertEqual(self.pick(outcome="", section="waived"), rows(lambda r: r["verdict"] == "XFAIL"))
        self.assertEqual(
            self.pick(section="", **{"class": "axis-permuted"}),
            rows(lambda r: r.get("diagnosis", {}).get("fault_class") == "axis-permuted"),
        )
        self.assertGreater(len(self.pick(outcome="FAIL")), 1)
        self.filter("dtype == bf16")
        self.assertEqual(
            self.value("kvcts.rows"),
            rows(
                lambda r: (
                    r.get("diagnosis", {}).get("fault_class") == "axis-permuted"
                    and r["outcome"] == "FAIL"
                    and r["facts"].get("axes", {}).get("dtype") == "bf16"
                )
            ),
        )
        self.filter("")
        self.pick(outcome="", **{"class": ""})
        self.assertEqual(self.pick(text="FP8 Conversion"), rows(lambda r: "fp8 conversion" in r["message"]))
        self.assertEqual(self.pick(text="every/HANG"), rows(lambda r: "every/hang" in r["id"]))
        self.assertEqual(self.pick(text="no such text"), [])
        self.assertEqual(len(self.pick(text="")), len(results))

    def test_the_address_brings_filter_and_case_back(self):
        self.filter("arch == cpu")
        self.pick(outcome="FAIL")
        self.choose("dtype", "arch", "")
        rows = self.value("kvcts.rows")
        self.value("document.querySelector('.cases .open').click()")
        address = self.value("location.hash")
        for part in ("where=arch+%3D%3D+cpu", "outcome=FAIL", "rows=dtype", "case=kv%2F"):
            self.assertIn(part, address)
        page = self.browser.open(self.file, address=address)
        self.assertEqual(page.evaluate("kvcts.rows"), rows)
        self.assertEqual(page.evaluate("document.getElementById('where').value"), "arch == cpu")
        self.assertIn("dtype by", page.evaluate("document.querySelector('.matrix caption').textContent"))
        self.assertIn(
            self.value("kvcts.run.ids[kvcts.rows[0]]"), page.evaluate("document.querySelector('.opened').innerText")
        )
        link = page.evaluate("document.querySelector('.opened a[href^=\"#case=\"]').getAttribute('href')")
        page.close()
        # A case that the filter leaves out, on a later page of the list, and one that is not there.
        last = self.value("kvcts.run.ids[kvcts.run.n - 1]")
        page = self.browser.open(self.file, address="#outcome=HANG&case=" + last.replace("/", "%2F").replace(" ", "+"))
        self.assertIn(last, page.evaluate("document.querySelector('.opened').previousElementSibling.innerText"))
        self.assertEqual(page.evaluate("document.getElementById('by-outcome').value"), "")
        page.evaluate(f"location.hash = {json.dumps(link)}")
        page.evaluate("new Promise(done => setTimeout(done, 100))")
        self.assertIn("kv/", page.evaluate("document.querySelector('.opened').previousElementSibling.innerText"))
        page.evaluate("location.hash = '#case=no/such'")
        page.evaluate("new Promise(done => setTimeout(done, 100))")
        self.assertIn("no/such is not on this page", page.evaluate("document.getElementById('case-error').innerText"))
        self.assertEqual(page.problems, [])
        page.close()
        self.pick(outcome="")
        self.choose("producer", "dtype", "")
        self.filter("")

    def test_says_what_changed_since_a_run_before(self):
        before = Path(self.folder.name) / "before"
        sample("write", str(before), "400")
        file = report(self.run_folder, Path(self.folder.name) / "since", "--since", str(before))
        told = json.loads(
            subprocess.run(
                [str(KVCTS), "compare", str(before), str(self.run_folder), "--json"],
                capture_output=True,
                text=True,
                timeout=60,
            ).stdout
        )
        self.assertGreater(sum(told["counts"].values()), 100)
        page = self.browser.open(file)
        text = page.evaluate("document.querySelector('section[aria-labelledby=since]').innerText")
        for change, n in told["counts"].items():
            self.assertEqual(f"{change} {n:,} case" in text, n > 0, change)
        link = page.evaluate("document.querySelector('.since a').getAttribute('href')")
        page.evaluate("document.querySelector('.since a').click()")
        page.evaluate("new Promise(done => setTimeout(done, 100))")
        self.assertEqual(page.evaluate("location.hash.includes('case=')"), True, link)
        self.assertIn(
            page.evaluate("document.querySelector('.since a').innerText"),
            page.evaluate("document.querySelector('.opened').previousElementSibling.innerText"),
        )
        self.assertEqual(page.problems, [])
        page.close()

    # ---- matrix and coverage ----

    def test_matrix_begins_with_engines(self):
        page = self.browser.open(self.file)
        self.assertIn("engine by dtype", page.evaluate("document.querySelector('.matrix caption').textContent"))
        page.close()

    def choose(self, *names: str) -> None:
        """Rows, columns, tables."""
        self.value(
            "((...names) => [...document.querySelectorAll('#matrix-axes select')].forEach((s, i) => { s.value = "
            "names[i]; s.dispatchEvent(new Event('change')); }))(%s)" % ", ".join(map(json.dumps, names))
        )

    def test_matrix_cells_say_all_in_words_and_narrow(self):
        self.choose("producer", "dtype", "")
        labels = self.value("[...document.querySelectorAll('.matrix td button')].map(x => x.getAttribute('aria-label'))")
        self.assertGreater(len(labels), 50)
        for label in labels:
            self.assertRegex(
                label,
                r"^.+, .+: [\d,]+ [A-Z_]+.*; (as expected|not as expected|waived|passed|skipped|not run|unsupported|error)",
            )
        shown = dict(
            zip(labels, self.value("[...document.querySelectorAll('.matrix td button')].map(x => x.innerText)"), strict=True)
        )
        for label, cell in shown.items():
            n = sum(int(k.replace(",", "")) for k in re.findall(r"([\d,]+) [A-Z_]+", label.split(": ", 1)[1].split(";")[0]))
            self.assertRegex(cell, r"^[A-Z]$" if n == 1 else rf"^[A-Z]\s*(\d+/)?{n}$", label)
        self.value("document.querySelector('.matrix td button').click()")
        self.assertRegex(self.value("document.getElementById('where').value"), r"^\S+ == \S+ && \S+ == \S+$")
        first = labels[0].split(": ")[1]
        self.assertEqual(
            self.value("kvcts.rows.length"), sum(int(n) for n in re.findall(r"(\d+) [A-Z_]+", first.split(";")[0]))
        )

    def test_matrix_never_shows_weaker_evidence_as_stronger(self):
        self.filter("arch != cpu")
        kinds, mixed = set(), 0
        for columns in ("arch", "dtype"):
            self.choose("producer", columns, "")
            for look, title in self.looks():
                ran = [kind for kind in ("modelled", "compiled", "executed") if " " + kind in title.split(";", 1)[1]]
                self.assertEqual(look, ran[0] if ran else "none", title)
                kinds.add(look)
                mixed += len(ran) > 1
        self.assertEqual(kinds, {"none", "modelled", "compiled", "executed"})
        self.assertGreater(mixed, 3, "cells with several kinds")

    def looks(self) -> list:
        return self.value("""[...document.querySelectorAll('.matrix td')].filter(td => td.querySelector('button')).map(td =>
          [td.className.match(/e-(\\w+)/)[1], td.querySelector('button').title])""")

    def test_matrix_by_any_axes(self):
        for rows, columns, tables in (("pair", "dtype", ""), ("dtype", "arch", "engine"), ("producer.layout", "arch", "")):
            self.choose(rows, columns, tables)
            self.assertIn(f"{rows} by {columns}", self.value("document.querySelector('.matrix caption').textContent"))
            self.assertGreater(self.value("document.querySelectorAll('.matrix td button').length"), 3)
        self.choose("producer", "dtype", "")

    def test_arrows_walk_over_the_matrix(self):
        self.value("document.querySelector('.matrix button[tabindex=\"0\"]').focus()")
        before = self.value("document.activeElement.getAttribute('aria-label')")
        self.page.press("ArrowDown")
        after = self.value("document.activeElement.getAttribute('aria-label')")
        self.assertNotEqual(before, after)
        self.assertEqual(self.value("document.querySelectorAll('.matrix button[tabindex=\"0\"]').length"), 1)

    def test_coverage_counts_as_the_covering_arrays_do(self):
        found = self.value("""(() => { const names = [...kvcts.run.axes.keys()].filter(n => !n.includes('.')),
          all = [...Array(kvcts.run.n).keys()].filter(i => kvcts.run.ids[i].includes('/producer='));
          let ran = 0, stopped = 0;
          names.forEach((a, i) => names.slice(0, i).forEach(b => { const p = kvcts.pairs(kvcts.run, all, a, b);
            if (p.a > 1 && p.b > 1) ran += p.ran.length, stopped += p.stopped.length; }));
          return {ran, stopped}; })()""")
        self.assertEqual(found, json.loads(sample("pairs", str(self.run_folder))))
        self.value("document.querySelector('.coverage .share').click()")
        self.assertIn("Not planned", self.value("document.querySelector('#coverage-view [aria-live]').innerText"))

    # ---- a failure ----

    def open_failure(self) -> None:
        """Opens the first case of the largest cause."""
        self.value("""(() => { const card = document.getElementById('failed-1');
          card.querySelectorAll('details').forEach(d => d.open = true);
          return new Promise(done => setTimeout(() => { card.querySelector('.case-block').open = true;
            setTimeout(done, 50); }, 50)); })()""")

    def test_a_failure_opens_to_its_case(self):
        self.open_failure()
        text = self.value("document.querySelector('#failed-1 .case').innerText")
        for part in (
            "Expected",
            "FAIL axis-permuted at compare",
            "First wrong bytes",
            "guard below",
            "Phases",
            "compare",
            "Where bytes came from",
            "Layouts",
            "lane0/worker1",
        ):
            self.assertIn(part, text)
        counted = self.value("document.querySelector('#failed-1 > figure.map svg').getAttribute('aria-label')")
        self.assertIn(re.match(r"\d+ of \d+ byte ranges", counted)[0] + " shown came from elsewhere", text)
        self.assertTrue(self.value("!!document.querySelector('#failed-1 .case a[href=\"#class-axis-permuted\"]')"))
        figures = self.value(
            "[...document.querySelectorAll('#failed-1 .case svg[role=img]')].map(s => s.getAttribute('aria-label'))"
        )
        self.assertGreaterEqual(len(figures), 5)
        self.assertTrue(all(figures), "every drawing has a description")
        self.assertTrue(any("Loops from the outermost: " in f for f in figures))
        self.assertTrue(any(" but " in f for f in figures), "a run that came from another place")
        self.assertGreater(self.value("document.querySelectorAll('#failed-1 .moves .cross').length"), 0)
        self.assertTrue(
            self.value(
                "[...document.querySelectorAll('#failed-1 .case svg.bytes')].every(s => "
                "s.querySelectorAll('rect').length > 100)"
            )
        )

    def test_the_map_shows_at_a_glance_what_came_from_elsewhere(self):
        """In the card itself, nothing opened: strips of several colours, marks below the runs that are wrong, all of it
        to be seen."""
        shape = self.value("""(() => { const map = document.querySelector('#failed-1 > figure.map svg'),
          box = map.getBoundingClientRect(), off = map.querySelector('.off').getBoundingClientRect();
          const rects = [...map.querySelectorAll('rect')];
          return {width: box.width, height: box.height, off: off.width, label: map.getAttribute('aria-label'),
            inside: rects.every(r => { const b = r.getBoundingClientRect();
            return b.left >= box.left - 1 && b.right <= box.right + 1 && b.width > 0;
              }), colours: new Set(rects.map(r => getComputedStyle(r).fill)).size}; })()""")
        self.assertGreater(shape["width"], 300)
        self.assertGreater(shape["height"], 60)
        self.assertGreater(shape["off"], 1)
        self.assertTrue(shape["inside"])
        self.assertGreater(shape["colours"], 2)
        self.assertRegex(shape["label"], r"^[1-9]\d* of \d+ byte ranges of .* came from another place; they differ in ")

    def test_drawings_follow_the_map(self):
        """Place to byte and back, for every plane of every picture on the page."""
        wrong = self.value("""(() => { const letters = 'LKBNHC'; const bad = []; let seen = 0;
          for (const d of Object.values(kvcts.run.details)) for (const g of (d.picture || {groups: []}).groups)
            for (const side of [g.producer, g.consumer]) for (const region of side.regions)
            for (const plane of region.planes) {
            const coord = Object.fromEntries([...letters].map((a, i) => [a, plane.origin[i]]));
            for (const [axis, extent, stride, step] of plane.modes) coord[axis] += (extent - 1) * step;
            const bit = kvcts.layoutMap.bitOf(plane, coord);
            const back = kvcts.layoutMap.lookAt(region, bit);
            ++seen;
            if (!back || [...letters].some(a => back.coord[a] !== coord[a])) bad.push([region.name, plane, coord,
              back && back.coord]);
          }
          return {seen, bad: bad.slice(0, 2)}; })()""")
        self.assertEqual(wrong["bad"], [])
        self.assertGreater(wrong["seen"], 10)

    def test_stacks_open(self):
        hang = self.value("""(() => { const i = [...Array(kvcts.run.n).keys()].find(i => kvcts.run.outcome.of(i) ===
          'HANG' && kvcts.run.ids[i].startsWith('kv/') && kvcts.run.details[i]);
          const node = kvcts.renderCase(kvcts.run, i); document.body.append(node);
            node.querySelectorAll('.evidence details').forEach(d => d.open = true);
          return new Promise(done => setTimeout(() => { done(node.innerText); node.remove(); }, 100)); })()""")
        self.assertIn("ucp_worker_wait", hang)

    def test_copy_button_copies_the_repro_line(self):
        self.browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        self.value("document.querySelector('#failed-1 .copy-button').click()")
        self.assertEqual(
            self.value(
                "new Promise(done => setTimeout(() => done(document.querySelector('#failed-1 "
                ".copy-button').textContent), 200))"
            ),
            "Copied",
        )
        shown = self.value("document.querySelector('#failed-1 .copy-line pre').textContent")
        self.assertRegex(shown, r"^kvcts repro 'kv/producer=\S+'$")
        self.assertEqual(self.value("navigator.clipboard.readText()"), shown)

    def test_what_is_hostile_stays_text(self):
        self.assertEqual(self.value("document.querySelectorAll('main i, main b:not(.shares b)').length"), 0)
        self.assertIn("<b>not bold</b>", self.page.text())
        self.assertIn("\\x1b[31mred", self.page.text())

    # ---- cases ----

    def test_pages_of_cases(self):
        self.assertEqual(self.value("document.querySelectorAll('.cases tbody tr').length"), 50)
        first = self.value("document.querySelector('.cases tbody th').innerText")
        self.value("document.querySelector('.pager button:last-child').click()")
        self.assertIn("51 to 100 of", self.value("document.querySelector('.pager').innerText"))
        self.assertNotEqual(self.value("document.querySelector('.cases tbody th').innerText"), first)
        self.value("document.querySelector('.cases .open').click()")
        self.assertIn("kvcts repro", self.value("document.querySelector('.cases .opened').innerText"))
        self.assertEqual(self.value("document.querySelector('.cases .open').getAttribute('aria-expanded')"), "true")

    # ---- for everybody ----

    def test_landmarks_headings_names(self):
        self.assertEqual(
            self.value(
                "['header', 'nav', 'main', 'footer', 'form[role=search]'].map(s => document.querySelectorAll(s).length)"
            ),
            [1, 1, 1, 1, 1],
        )
        levels = self.value(
            "[...document.querySelectorAll('h1, h2, h3, h4, h5')].filter(h => h.checkVisibility()).map(h => +h.tagName[1])"
        )
        self.assertEqual(levels[0], 1)
        self.assertTrue(all(b <= a + 1 for a, b in zip(levels, levels[1:])), levels)
        nodes = self.page.call("Accessibility.getFullAXTree")["nodes"]
        nameless = [
            n["role"]["value"]
            for n in nodes
            if not n.get("ignored")
            and n.get("role", {}).get("value")
            in ("button", "textbox", "combobox", "img", "link", "table", "grid", "region", "search")
            and not n.get("name", {}).get("value")
        ]
        self.assertEqual(nameless, [])
        self.assertEqual(
            self.value("[...document.querySelectorAll('table')].filter(t => t.checkVisibility() && !t.caption).length"), 0
        )

    def test_contrast_is_at_least_four_and_a_half(self):
        for dark in (False, True):
            page = self.browser.open(self.file, dark=dark)
            page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
            page.evaluate("new Promise(done => setTimeout(done, 200))")
            poor = page.evaluate(CONTRAST)
            self.assertEqual(poor, [], "dark" if dark else "light")
            page.close()

    def test_keyboard_reaches_and_opens(self):
        page = self.browser.open(self.file)
        seen = []
        for _ in range(40):
            page.press("Tab")
            seen.append(
                page.evaluate("document.activeElement.tagName + ' ' + (document.activeElement.innerText || '').slice(0, 30)")
            )
        self.assertIn("Skip to the results", seen[0])
        self.assertTrue(any(s.startswith("BUTTON Copy") for s in seen), seen)
        self.assertTrue(any(s.startswith("SUMMARY") for s in seen), seen)
        page.evaluate("document.querySelector('#failed-1 summary').focus()")
        page.press("Enter")
        self.assertTrue(page.evaluate("document.querySelector('#failed-1 details').open"))
        page.close()

    def test_on_a_phone_nothing_runs_out_of_the_window(self):
        page = self.browser.open(self.file, width=390, height=844)
        page.evaluate("document.querySelectorAll('#failed-1 details').forEach(d => d.open = true)")
        page.evaluate(
            "new Promise(done => setTimeout(() => { document.querySelector('#failed-1 .case-block').open = true; "
            "setTimeout(done, 100); }, 100))"
        )
        page.evaluate(
            "document.querySelectorAll('.cases td:nth-child(4)').forEach(td => td.textContent = 'executed on this CPU')"
        )
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 390)
        self.assertEqual(page.problems, [])
        page.close()

    def test_without_scripts_the_essentials_are_there(self):
        page = self.browser.open(self.file, scripts=False)
        page.call("Emulation.setScriptExecutionDisabled", value=False)  # to look at the page that was made without
        text = page.text()
        self.assertFalse(page.evaluate("typeof kvcts === 'object'"))
        for part in (
            "The suite itself failed in",
            "did not end as expected",
            "Cases by outcome and verdict",
            "Unique executions",
            "FAIL axis-permuted at compare",
            "kvcts repro '",
            "First wrong bytes",
            "planned, but the run ended without a result for it",
            "no GPU on this machine",
            "fp8 conversion needs sm_89",
            "waiver mooncake-lbhnc",
            "a CPU of 4 cores",
            "need scripts",
        ):
            self.assertIn(part, text)
        self.assertNotIn("Clear", text)
        self.assertIn("every/<i>id</i>", text)
        self.assertEqual(page.evaluate("document.querySelectorAll('main i, main b:not(.shares b)').length"), 0)
        page.close()

    def test_prints(self):
        pdf = self.page.call("Page.printToPDF")["data"]
        self.assertGreater(len(pdf), 50_000)
        self.page.call("Emulation.setEmulatedMedia", media="print")
        self.assertEqual(self.value("getComputedStyle(document.querySelector('.filter')).display"), "none")
        self.page.call("Emulation.setEmulatedMedia", media="")

    # ---- other pages ----

    def test_compatibility(self):
        out = Path(self.folder.name) / "compat"
        done = subprocess.run(
            [str(KVCTS), "report", str(self.run_folder), "--compat", "--out", str(out)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        results = json.loads((self.file.parent / "results.json").read_text())["results"]
        wanted = [r for r in results if r["id"].startswith("kv/") and r["facts"].get("axes")]
        pairs = {(a["engine"], a["producer"], a["consumer"]) for a in (r["facts"]["axes"] for r in wanted)}
        markdown = (out / "compatibility.md").read_text()
        counted = sum(
            int(n.replace(",", ""))
            for n in re.findall(
                r"(?:PASS|FAIL|REFUSED|HANG|CRASH|FLAKY|UNSUPPORTED|SKIPPED|NOT_RUN|ERROR) ([\d,]+)",
                markdown.split("## Engine", 1)[1],
            )
        )
        self.assertTrue(
            pairs
            <= {
                (part.split("\n", 1)[0], *re.match(r"\| (\S+) \| (\S+) \|", line).groups())
                for part in markdown.split("## Engine ")[1:]
                for line in part.splitlines()[4:]
                if line.startswith("| ")
            },
            "the ids say what the facts say",
        )
        self.assertEqual(counted, len([r for r in results if r["id"].startswith("kv/")]))
        one = next(r for r in wanted if r["outcome"] == "HANG")["facts"]["axes"]
        part = next(p for p in markdown.split("## Engine ") if p.startswith(one["engine"] + "\n"))
        header = [c.strip() for c in part.splitlines()[2].strip("|").split("|")]
        row = next(line for line in part.splitlines() if line.startswith(f"| {one['producer']} | {one['consumer']} |"))
        self.assertIn("HANG 1", dict(zip(header, [c.strip() for c in row.strip("|").split("|")], strict=True))[one["dtype"]])

    def test_without_the_case_data_the_filter_still_knows_axes(self):
        done = subprocess.run(
            [str(KVCTS), "report", str(self.run_folder), "--out", str(Path(self.folder.name) / "bare")],
            capture_output=True,
            text=True,
            timeout=60,
            env={"KVCTS_CASES": "/nowhere", "PATH": "/usr/bin:/bin"},
        )
        self.assertIn("no facts like dtype.family", done.stderr)
        page = self.browser.open(Path(self.folder.name) / "bare" / "index.html")
        self.filter("dtype == nvfp4 && pbs > 8", page)
        self.assertTrue(0 < page.evaluate("kvcts.rows.length") < page.evaluate("kvcts.run.n"))
        self.filter("dtype.family == fp8", page)
        self.assertIn(
            "expected a fact of axis 'dtype', found 'dtype.family'; none is known",
            page.evaluate("document.getElementById('where-error').innerText"),
        )
        page.close()

    def test_ten_thousand_cases(self):
        run = Path(self.folder.name) / "large"
        sample("write", str(run), "10000")
        file = report(run, Path(self.folder.name) / "large-out")
        size = file.stat().st_size
        begin = time.monotonic()
        page = self.browser.open(file)
        loaded = time.monotonic() - begin
        ready = page.evaluate("document.documentElement.dataset.ready")
        begin = time.monotonic()
        self.filter("dtype == bf16 && producer ~ vllm-* && arch < sm_90", page)
        filtered = time.monotonic() - begin
        print(
            f"10,000 cases: {size / 1e6:.2f} MB, ready after {ready} ms, loaded in {loaded:.2f} s, filtered in "
            f"{filtered:.2f} s"
        )
        self.assertLess(size, MOST_BYTES)
        self.filter("", page)
        self.assertGreater(page.evaluate("kvcts.run.n"), 9_900)
        self.assertEqual(page.evaluate("kvcts.rows.length"), page.evaluate("kvcts.run.n"))
        self.assertEqual(page.problems, [])
        self.assertLess(loaded, 60)
        page.close()


# Texts whose contrast with what is behind them is below 4.5 (3 for large text). Colours behind: the nearest ancestor that
# has one.
CONTRAST = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = colour => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const d = canvas.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
  const luminance = ([r, g, b]) => { const f = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
    return .2126 * f(r) + .7152 * f(g) + .0722 * f(b); };
  const over = (a, b) => a.slice(0, 3).map((v, i) => v * a[3] + b[i] * (1 - a[3]));
  const behind = node => {
    const layers = [];
    for (let n = node; n; n = n.parentElement) {
      const c = rgba(getComputedStyle(n).backgroundColor);
      if (c[3] > 0) layers.push(c);
      if (c[3] === 1) break;
    }
    let colour = rgba(getComputedStyle(document.documentElement).getPropertyValue('--paper').trim());
    for (const layer of layers.reverse()) colour = over(layer, colour);
    return colour;
  };
  const poor = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), node = walker.currentNode.parentElement;
    if (!text || !node.checkVisibility({opacityProperty: true})) continue;
    if (node.closest('script, style, svg, .away, option, :disabled')) continue;
    const style = getComputedStyle(node);
    let opacity = 1; for (let n = node; n; n = n.parentElement) opacity *= +getComputedStyle(n).opacity;
    const back = behind(node), own = rgba(style.color); own[3] *= opacity;
    const a = luminance(over(own, back)), b = luminance(back), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && +style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) poor.set(node.tagName + '.' + node.className + ' ' + ratio.toFixed(2), text.slice(0, 40));
  }
  return [...poor].slice(0, 8);
})()"""


if __name__ == "__main__":
    need_program()
    if not SAMPLE.exists():
        print(f"skipped: {SAMPLE} is not built")
        sys.exit(77)
    if browser.find() is None:
        print(
            "skipped: no Chromium here (chromium-headless-shell, chromium or $KVCTS_BROWSER); ./run_suite.sh "
            "--browser self-test installs one"
        )
        sys.exit(77)
    unittest.main(verbosity=1)
