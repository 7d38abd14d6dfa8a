// One case in full.
{
  const {el, svg, terms, thousands} = kvcts;

  const phases = list => {
    const all = Math.max(1, list.reduce((sum, [, ns]) => sum + ns, 0));
    return el(
        'table', {class: 'phases'}, el('caption', {}, 'Phases, ' + kvcts.duration(all) + ' together'),
        el('tbody', {},
           list.map(
               ([name, ns]) =>
                   el('tr', {}, el('th', {scope: 'row'}, name), el('td', {class: 'n'}, kvcts.duration(ns)),
                      el('td', {class: 'track', 'aria-hidden': 'true'},
                         svg('svg', {viewBox: '0 0 100 8', preserveAspectRatio: 'none'},
                             svg('rect', {width: Math.max(.5, 100 * ns / all), height: 8})))))));
  };
  const wrong = rows =>
      el('div', {class: 'wide'},
         el('table', {}, el('caption', {}, 'First wrong bytes'),
            el('thead', {},
               el('tr', {},
                  ['Where', 'Region', 'Offset', 'Expected', 'Found'].map(
                      h => el('th', {scope: 'col', class: h === 'Offset' ? 'n' : null}, h)))),
            el('tbody', {},
               rows.map(
                   ([where, region, offset, expected, observed]) =>
                       el('tr', {}, el('td', {}, where), el('td', {}, el('code', {}, region)),
                          el('td', {class: 'n'}, thousands(offset)), el('td', {}, el('code', {}, expected)),
                          el('td', {}, el('code', {}, observed)))))));
  const tries = ([words, , failures]) =>
      el('div', {class: 'wide'},
         el('table', {}, el('caption', {}, 'Tries: ' + words),
            el('thead', {},
               el('tr', {},
                  ['Try', 'Ended', 'Message'].map(h => el('th', {scope: 'col', class: h === 'Try' ? 'n' : null}, h)))),
            el('tbody', {},
               failures.map(
                   ([number, ended, message]) => el(
                       'tr', {}, el('td', {class: 'n'}, thousands(number)), el('td', {}, ended), el('td', {}, message))))));
  const evidence = ([kind, size, text]) => kvcts.later(
      kind + ' (' + kvcts.plural(size, 'byte') +
          (text.length < size * .98 && size > 6000 ? ', the beginning is shown' : '') + ')',
      () => el('pre', {tabindex: '0'}, text));

  // The classes of report/nights.cpp.
  const cells = {' ': 'e', '-': 'n', '.': 'g', x: 'w', '~': 'f', F: 'b'};
  const strip = letters =>
      el('span', {class: 'strip', role: 'img', 'aria-label': 'night by night: ' + letters},
         [...letters].map(letter => el('i', {class: cells[letter]})));

  const words = value =>
      typeof value === 'string' ? value : Object.entries(value).map(([key, item]) => key + ' ' + words(item)).join(', ');

  kvcts.renderCase = (run, i) => {
    const d = run.details[i], id = run.ids[i];
    const axes = [...run.axes.keys()].map(name => [name, run.text(i, name)]);
    const out = [
      terms([
        ['Expected', d && d.expected],
        ['Ended', run.ending.of(i) + ', ' + run.verdict.of(i)],
        ['Class', run.class.of(i) && el('a', {href: '#class-' + run.class.of(i)}, run.class.of(i))],
        ['Message', d && d.message],
        [
          d && d.exact === false ? 'Diagnosis (a guess)' : 'Diagnosis',
          d && d.diagnosis && !(d.message || '').includes(d.diagnosis) ? d.diagnosis : null
        ],
        ['Or as well', d && d.others ? d.others.join('; ') : null],
        ['Next', d && d.next],
        ['Waiver', d && d.waiver],
        ['Nights', run.strips[id] && strip(run.strips[id])],
        ['Title', d && d.title],
        [
          'Bytes',
          d && d.bytes ? thousands(d.bytes[0]) + ' checked, ' + thousands(d.bytes[1]) + ' wrong; ' + thousands(d.bytes[2]) +
                  ' planned, ' + thousands(d.bytes[3]) + ' moved, ' + thousands(d.bytes[4]) + ' expected, in ' +
                  (d.bytes[5] === 1 ? '1 copy' : thousands(d.bytes[5]) + ' copies') :
                         null
        ],
        ['Evidence', run.evidence.of(i)],
      ]),
      kvcts.copyLine(kvcts.reproLine(run, id, d && d.tries && d.tries[1], d && d.as_run)),
      el('p', {class: 'quiet'}, el('a', {href: kvcts.address({case: id})}, 'Link to this case'))
    ];
    if (!d) {
      out.push(terms(axes));
      out.push(
          el('p', {class: 'quiet'}, 'All of this case is in results.json; this page keeps the details of some cases only.'));
      return el('div', {class: 'case'}, out);
    }
    if (d.picture) out.push(kvcts.picture(d.picture, d.wrong));
    if (d.tries && d.tries[2].length) out.push(tries(d.tries));
    if (d.happened) out.push(el('ul', {}, d.happened.map(text => el('li', {}, text))));
    if (d.wrong) out.push(wrong(d.wrong));
    const more = el('div', {class: 'sides'});
    if (d.phases) more.append(phases(d.phases));
    more.append(terms([
      ['Worker', d.worker ? d.worker + ', its case number ' + d.ordinal : null], ['After', d.after],
      ['Execution of', d.shared], ['Peak memory', d.peak ? thousands(Math.round(d.peak / 1024)) + ' KiB' : null],
      ['Engine', d.engine_version ? words(d.engine_version) : null],
      ['Engine claims', d.engine_claims ? words(d.engine_claims) : null], ['Case file', d.file],
      ['Links', d.links ? d.links.join(' ') : null], ['Seed', d.seed], ['Digest', el('code', {}, d.digest)], ...axes
    ]));
    out.push(more);
    if (d.evidence) out.push(el('div', {class: 'evidence'}, el('h4', {}, 'Evidence'), d.evidence.map(evidence)));
    return el('div', {class: 'case'}, out);
  };
  /** A case that opens. */
  kvcts.caseBlock = (run, i) =>
      kvcts.later(el('code', {}, run.ids[i]), () => kvcts.renderCase(run, i), {class: 'case-block'});

  /** The lists of ids below causes and reasons: every case, each to be opened, twenty at a time. */
  kvcts.fillCauses = run => {
    const members = new Map();
    for (let i = 0; i < run.n; ++i) {
      const key = run.cause.of(i);
      if (key) (members.get(key) || members.set(key, []).get(key)).push(i);
    }
    for (const list of document.querySelectorAll('ul.ids')) {
      const all = members.get(list.dataset.cause) || [];
      if (all.length === 0) continue;
      // Those with details first.
      all.sort((a, b) => (b in run.details) - (a in run.details) || a - b);
      const items = () => {
        const ul = el('ul', {class: 'ids'});
        const more = el('button', {type: 'button', onclick: () => show()}, '');
        let shown = 0;
        const show = () => {
          for (const i of all.slice(shown, shown + 20)) ul.append(el('li', {}, kvcts.caseBlock(run, i)));
          shown = Math.min(all.length, shown + 20);
          more.textContent = 'Show more of ' + thousands(all.length);
          more.hidden = shown >= all.length;
        };
        show();
        return el('div', {}, ul, more);
      };
      if (list.closest('table') || all.length > 5)
        list.replaceWith(kvcts.later(all.length === 1 ? 'the case' : 'all ' + kvcts.plural(all.length, 'case'), items));
      else
        list.replaceWith(items());
    }
  };
}
