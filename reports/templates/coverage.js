// Coverage: which pairs of values of two axes occurred together in a case that ran. Counted over the values that this run
// has; the same arithmetic as harness/matrix/cover.hpp at strength 2 (a test holds both against each other).
{
  const {el, thousands, plural} = kvcts;

  /** Pairs of two columns among the rows: {a, b, ran, stopped, absent}, each a list of [value of a, value of b]. */
  kvcts.pairs = (run, rows, nameA, nameB) => {
    const a = run.axes.get(nameA), b = run.axes.get(nameB);
    const seen = new Map(), valuesA = new Set(), valuesB = new Set();
    for (const i of rows) {
      const x = a.of(i), y = b.of(i);
      if (!x || !y) continue;
      valuesA.add(x), valuesB.add(y);
      const key = x + '\n' + y, ran = run.executed(i);
      const before = seen.get(key);
      if (before === undefined || (ran && before !== true)) seen.set(key, ran || run.section.of(i));
    }
    const out = {a: valuesA.size, b: valuesB.size, ran: [], stopped: [], absent: []};
    for (const x of valuesA) {
      for (const y of valuesB) {
        const state = seen.get(x + '\n' + y);
        (state === undefined ? out.absent :
             state === true  ? out.ran :
                               out.stopped)
            .push(state === undefined || state === true ? [x, y] : [x, y, state]);
      }
    }
    return out;
  };

  const list = (title, pairs, words) => pairs.length === 0 ?
      null :
      el('div', {}, el('h4', {}, title + ' (' + thousands(pairs.length) + ')'),
         el('ul', {class: 'pairs'},
            pairs.slice(0, 200).map(
                pair => el('li', {}, el('code', {}, pair[0] + ', ' + pair[1]), words ? ' ' + words(pair) : ''))),
         pairs.length > 200 ? el('p', {class: 'quiet'}, 'and ' + thousands(pairs.length - 200) + ' more') : null);

  /** Fills #coverage-view and returns update(rows). */
  kvcts.coverage = run => {
    const holder = document.getElementById('coverage-view');
    return rows => {
      const names = [...run.axes.keys()].filter(name => !name.includes('.')).filter(name => {
        const first = new Set(rows.map(i => run.axes.get(name).of(i)).filter(Boolean));
        return first.size > 1;
      });
      if (names.length < 2) {
        holder.replaceChildren(
            el('p', {class: 'quiet'}, 'Fewer than two axes vary among these cases: there are no pairs to cover.'));
        return;
      }
      const detail = el('div', {role: 'region', 'aria-label': 'Pairs of two axes', 'aria-live': 'polite'});
      let all = 0, ran = 0, stopped = 0;
      const body = el('tbody');
      names.slice(1).forEach((down, r) => {
        body.append(el('tr', {}, el('th', {scope: 'row'}, down), names.slice(0, -1).map((across, c) => {
          if (c > r) return el('td', {class: 'empty'});
          const found = kvcts.pairs(run, rows, down, across);
          const total = found.a * found.b, share = found.ran.length / total;
          all += total, ran += found.ran.length, stopped += found.stopped.length;
          const words = down + ' with ' + across + ': ' + thousands(found.ran.length) + ' of ' + thousands(total) +
              ' pairs ran, ' + thousands(found.stopped.length) + ' did not run though planned, ' +
              thousands(found.absent.length) + ' were not planned';
          return el(
              'td', {},
              el('button', {
                type: 'button',
                class: 'share',
                title: words,
                'aria-label': words,
                style: '--share:' + (100 * share).toFixed(1) + '%',
                onclick: () => detail.replaceChildren(
                    el('h3', {}, down + ' with ' + across), el('p', {}, words + '.'),
                    list('Planned, did not run', found.stopped, pair => kvcts.sectionWords[pair[2]]),
                    list('Not planned', found.absent))
              },
                 thousands(found.ran.length) + '/' + thousands(total)));
        })));
      });
      const table = el(
          'table', {class: 'coverage'}, el('caption', {}, 'Pairs of values that ran, of all pairs of the values that occur'),
          el('thead', {}, el('tr', {}, el('td'), names.slice(0, -1).map(name => el('th', {scope: 'col'}, name)))), body);
      holder.replaceChildren(
          el('p', {},
             thousands(ran) + ' of ' + plural(all, 'pair') + ' (' + (100 * ran / all).toFixed(1) +
                 ' %) occurred in a case that ran; ' + thousands(stopped) +
                 ' only in cases that did not run (unsupported as declared, skipped, left out). The others were not ' +
                 'planned: a constraint excludes them, or no case has them.'),
          el('div', {class: 'wide', role: 'region', 'aria-label': 'Coverage by two axes', tabindex: '0'}, table), detail);
    };
  };
}
