// The matrix: cases by two axes (and one table for each value of a third). A cell says the worst of its cases: a letter for
// the outcome, a colour for the verdict, a pattern for the weakest evidence of those that ran. Everything in it is also in
// its label, in words.
{
  const {el, thousands, plural} = kvcts;
  const letters = {
    PASS: 'P',
    FAIL: 'F',
    REFUSED: 'R',
    HANG: 'H',
    CRASH: 'C',
    FLAKY: 'Y',
    UNSUPPORTED: 'U',
    SKIPPED: 'S',
    NOT_RUN: 'N',
    ERROR: 'E'
  };
  const outcomeOrder = ['PASS', 'REFUSED', 'UNSUPPORTED', 'NOT_RUN', 'SKIPPED', 'FAIL', 'HANG', 'CRASH', 'FLAKY', 'ERROR'];
  const weakness = {executed: 1, compiled: 2, 'executed on this CPU': 3, modelled: 4};
  const rowsShown = 30;

  /** What can be a row, a column or a table: axes with values in this run, pairs of layouts, and facts behind the sides. */
  const dimensions = run => {
    const out = new Map();
    for (const [name, column] of run.axes)
      if (!name.includes('.') && column.words.some(Boolean))
        out.set(name, {of: i => column.of(i), where: (value) => name + ' == ' + quote(value)});
    if (out.has('producer') && out.has('consumer')) {
      out.set('pair', {
        of: i => {
          const p = run.text(i, 'producer');
          return p && p + ' → ' + run.text(i, 'consumer');
        },
        where: value => {
          const [p, c] = value.split(' → ');
          return 'producer == ' + quote(p) + ' && consumer == ' + quote(c);
        }
      });
    }
    for (const name of ['producer.layout', 'consumer.layout', 'producer.system', 'dtype.family']) {
      let ref = null;
      try {
        ref = run.vocabulary.resolve(name);
      } catch (unknown) {
        continue;
      }
      if (!run.axes.has(ref.axis)) continue;
      out.set(name, {
        of: i => {
          const text = run.text(i, ref.axis);
          const value = text && run.vocabulary.fact(ref.axis, ref.fact, text);
          return typeof value === 'string' ? value : '';
        },
        where: value => name + ' == ' + quote(value)
      });
    }
    for (const [name, dimension] of out) {
      const seen = new Set();
      for (let i = 0; i < run.n; ++i) seen.add(dimension.of(i));
      seen.delete('');
      dimension.count = seen.size;
      if (seen.size === 0) out.delete(name);
    }
    return out;
  };
  const quote = value =>
      /^[A-Za-z_][A-Za-z0-9_.]*([-+][A-Za-z0-9_.]+)*$/.test(value) || /^[0-9]+$/.test(value) ? value : '"' + value + '"';

  class Cell {
    constructor() {
      this.n = 0;
      this.rows = [];
    }
    add(run, i) {
      ++this.n;
      this.rows.push(i);
    }
    sum(run) {
      const outcomes = new Map(), evidence = new Map();
      let section = kvcts.severity[0], outcome = '', weakest = '', idle = 0, bad = 0;
      for (const i of this.rows) {
        const o = run.outcome.of(i), s = run.section.of(i), e = run.evidence.of(i);
        outcomes.set(o, (outcomes.get(o) || 0) + 1);
        if (e)
          evidence.set(e, (evidence.get(e) || 0) + 1);
        else
          ++idle;
        bad += run.troubled(i);
        if (e && (weakness[e] > (weakness[weakest] || 0))) weakest = e;
        const worse = kvcts.severity.indexOf(s) - kvcts.severity.indexOf(section);
        if (outcome === '' || worse > 0 || (worse === 0 && outcomeOrder.indexOf(o) > outcomeOrder.indexOf(outcome)))
          section = s, outcome = o;
      }
      const ran = [...evidence].map(([e, n]) => thousands(n) + ' ' + e).join(', ');
      return {
        section,
        outcome,
        weakest,
        count: this.n === 1         ? '' :
            bad > 0 && bad < this.n ? thousands(bad) + '/' + thousands(this.n) :
                                      thousands(this.n),
        partly: idle > 0 && idle < this.n,
        words: outcomeOrder.filter(o => outcomes.has(o)).map(o => thousands(outcomes.get(o)) + ' ' + o).join(', ') + '; ' +
            kvcts.sectionWords[section] + (ran ? '; ' + ran : '')
      };
    }
  }

  // What the cell looks like: colour by verdict, pattern by evidence.
  const look = sum => 'v-' + (sum.section === 'fine' ? (sum.outcome === 'PASS' ? 'pass' : 'known') : sum.section) + ' e-' +
      (sum.weakest === 'executed on this CPU' ? 'modelled' : sum.weakest || 'none') + (sum.partly ? ' partly' : '');

  const table = (run, rows, rowAxis, columnAxis, caption, narrow, from) => {
    const cells = new Map(), columns = new Map(), lines = new Map();
    for (const i of rows) {
      const r = rowAxis.of(i), c = columnAxis.of(i);
      if (!r || !c) continue;
      if (!lines.has(r)) lines.set(r, 0);
      if (run.troubled(i)) lines.set(r, lines.get(r) + 1);
      columns.set(c, true);
      const key = r + '\n' + c;
      if (!cells.has(key)) cells.set(key, new Cell());
      cells.get(key).add(run, i);
    }
    // Trouble first, then as the catalogue has them; archs by number.
    const byArch = (a, b) => Number(a.slice(3)) - Number(b.slice(3));
    const names = [...columns.keys()];
    if (names.every(name => name === 'cpu' || name.startsWith('sm_')))
      names.sort((a, b) => a === 'cpu' ? -1 : b === 'cpu' ? 1 : byArch(a, b));
    const order = [...lines]
                      .map(([name, bad], at) => ({name, bad, at}))
                      .sort((a, b) => (b.bad > 0) - (a.bad > 0) || a.at - b.at)
                      .map(line => line.name);
    if (order.length === 0) return null;

    const body = el('tbody');
    const node =
        el('table', {class: 'matrix', role: 'grid'}, el('caption', {}, caption),
           el('thead', {}, el('tr', {}, el('td'), names.map(name => el('th', {scope: 'col'}, el('span', {}, name))))), body);
    const draw = line => body.append(el('tr', {}, el('th', {scope: 'row'}, line), names.map(name => {
      const cell = cells.get(line + '\n' + name);
      if (!cell) return el('td', {class: 'empty'}, el('span', {class: 'away'}, 'no case'));
      const sum = cell.sum(run);
      return el(
          'td', {class: look(sum)},
          el('button', {
            type: 'button',
            tabindex: '-1',
            title: line + ', ' + name + ': ' + sum.words,
            'aria-label': line + ', ' + name + ': ' + sum.words,
            onclick: () => narrow([rowAxis.where(line), columnAxis.where(name)])
          },
             letters[sum.outcome] || '?', el('small', {}, sum.count)));
    })));
    let shown = 0;
    const more =
        el('button', {type: 'button', class: 'more', onclick: () => show(order.length)},
           'Show all ' + plural(order.length, 'row'));
    const show = until => {
      for (const line of order.slice(shown, until)) draw(line);
      shown = Math.min(until, order.length);
      more.hidden = shown >= order.length;
      const first = body.querySelector('button');
      if (first) first.tabIndex = 0;
    };
    show(from || rowsShown);
    node.addEventListener('keydown', event => walk(event, node));
    return el('div', {}, el('div', {class: 'wide', role: 'region', 'aria-label': caption, tabindex: '0'}, node), more);
  };

  // One stop for Tab; arrows walk over the cells.
  const walk = (event, node) => {
    const step = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
    const here = event.target.closest('td');
    if (!step || !here) return;
    event.preventDefault();
    let row = here.parentElement, at = here.cellIndex;
    for (;;) {
      if (step[0] < 0) row = row.previousElementSibling;
      if (step[0] > 0) row = row.nextElementSibling;
      at += step[1];
      const next = row && row.cells[at];
      if (!next || at < 1) return;
      const button = next.querySelector('button');
      if (!button) continue;
      node.querySelectorAll('button[tabindex="0"]').forEach(b => b.tabIndex = -1);
      button.tabIndex = 0;
      button.focus();
      return;
    }
  };

  const legend = () => {
    const item = (classes, letter, words) =>
        el('li', {}, el('span', {class: 'key ' + classes, 'aria-hidden': 'true'}, letter), words);
    return el(
        'div', {class: 'legends'},
        el('ul', {'aria-label': 'Colours'}, item('v-pass e-executed', 'P', 'PASS as expected'),
           item('v-known e-executed', 'F', 'another outcome, as expected'),
           item('v-failed e-executed', 'F', 'not as expected'),
           item('v-waived e-executed', 'F', 'waived, or passed against a waiver'),
           item('v-error e-executed', 'E', 'error of the suite'), item('v-skipped e-none', 'S', 'did not run')),
        el('ul', {'aria-label': 'Patterns'}, item('v-pass e-executed', '', 'executed on that architecture'),
           item('v-pass e-compiled', '', 'compiled for it'), item('v-pass e-modelled', '', 'modelled or run on this CPU'),
           item('v-pass e-modelled partly', 'P', 'some of its cases did not run')),
        el('p', {class: 'quiet'}, 'Letters: ',
           Object.entries(letters).map(([word, letter]) => letter + ' ' + word).join(', ') +
               '. A cell shows the worst of its cases that ran, the weakest evidence, and how many cases it ' +
               'has: 2/9 are two of nine not as expected.'));
  };

  /**
   * Fills #matrix-view and returns update(rows). `narrow(conditions)` adds to the filter. `asked`: {rows, columns, tables}
   * of the page's address, kept up to date; `changed()` is called.
   */
  kvcts.matrix = (run, narrow, asked, changed) => {
    const all = dimensions(run);
    const holder = document.getElementById('matrix-view'), controls = document.getElementById('matrix-axes');
    if (all.size === 0) {
      holder.replaceChildren(el('p', {class: 'quiet'}, 'The cases of this run carry no axis values.'));
      return () => {};
    }
    // The same axes first for every run of one kind: engines, else connectors, else the pairs of sides.
    const several = name => all.has(name) && all.get(name).count > 1;
    const wanted = [
      ...(several('engine')        ? ['engine', 'dtype'] :
              several('connector') ? ['connector', 'dtype'] :
                                     []),
      'producer', 'consumer', ...all.keys()
    ].filter(name => all.has(name));
    const rowsBy = wanted[0], columnsBy = wanted.find(name => name !== rowsBy) || rowsBy;
    const usual = {rows: rowsBy, columns: columnsBy, tables: ''};
    const chosen =
        Object.fromEntries(Object.entries(usual).map(([key, name]) => [key, all.has(asked[key]) ? asked[key] : name]));
    let last = [];
    const choose = (key, label, none) => {
      const select = el(
          'select', {
            onchange: () => {
              chosen[key] = select.value;
              asked[key] = chosen[key] === usual[key] ? '' : chosen[key];
              update(last);
              changed();
            }
          },
          none ? el('option', {value: ''}, 'one table') : null,
          [...all].map(
              ([name, {count}]) => el('option', {value: name, selected: chosen[key] === name}, name + ' (' + count + ')')));
      return el('label', {}, label + ' ', select);
    };
    controls.replaceChildren(
        choose('rows', 'Rows'), choose('columns', 'Columns'), choose('tables', 'A table for each', true));
    document.getElementById('matrix-legend').replaceChildren(legend());
    const update = rows => {
      last = rows;
      const rowAxis = all.get(chosen.rows), columnAxis = all.get(chosen.columns),
            tables = chosen.tables && all.get(chosen.tables);
      const caption = chosen.rows + ' by ' + chosen.columns;
      const out = [];
      if (tables) {
        const parts = new Map();
        for (const i of rows) {
          const key = tables.of(i);
          if (key) (parts.get(key) || parts.set(key, []).get(key)).push(i);
        }
        for (const [key, part] of [...parts].slice(0, 24))
          out.push(table(
              run, part, rowAxis, columnAxis, chosen.tables + ' ' + key + ': ' + caption,
              where => narrow([tables.where(key), ...where]), 12));
        if (parts.size > 24) out.push(el('p', {}, 'And ' + plural(parts.size - 24, 'more table') + ': filter to see them.'));
      } else {
        out.push(table(run, rows, rowAxis, columnAxis, caption, narrow));
      }
      const without = rows.filter(i => !rowAxis.of(i) || !columnAxis.of(i)).length;
      holder.replaceChildren(
          ...(out.some(Boolean) ? out.filter(Boolean) : [el('p', {class: 'quiet'}, 'No case to show.')]),
          without ? el('p', {class: 'quiet'},
                       plural(without, 'case') + ' say nothing of ' + caption.replace(' by ', ' or ') + '.') :
                    '');
    };
    return update;
  };
}
