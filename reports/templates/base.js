'use strict';
// The report's script. One object holds all parts, so that tests reach them: window.kvcts.
const kvcts = {};
{
  const make = (node, attributes, children) => {
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === undefined || value === null || value === false) continue;
      if (key.startsWith('on'))
        node.addEventListener(key.slice(2), value);
      else
        node.setAttribute(key, value === true ? '' : value);
    }
    for (const child of children.flat(Infinity)) {
      if (child !== undefined && child !== null && child !== '') node.append(child);
    }
    return node;
  };
  /** An element. Children are nodes or texts; texts stay texts, whatever is in them. */
  kvcts.el = (tag, attributes, ...children) => make(document.createElement(tag), attributes, children);
  kvcts.svg = (tag, attributes, ...children) => make(
      document.createElementNS(
          'http' +
              '://www.w3.org/2000/svg',
          tag),
      attributes, children);

  kvcts.thousands = n => n.toLocaleString('en');
  kvcts.plural = (n, noun) => kvcts.thousands(n) + ' ' + noun + (n === 1 ? '' : 's');
  /** Nanoseconds in words, as report/text.cpp has them. */
  kvcts.duration = ns => {
    const s = ns / 1e9;
    if (s < 1e-3) return Math.round(ns / 1e3) + ' µs';
    if (s < 1) return (s * 1e3).toFixed(s < 0.01 ? 2 : 0) + ' ms';
    if (s < 60) return s.toFixed(1) + ' s';
    const minutes = Math.floor(s / 60);
    return minutes < 60 ? minutes + ' min ' + Math.round(s % 60) + ' s' :
                          Math.floor(minutes / 60) + ' h ' + String(minutes % 60).padStart(2, '0') + ' min';
  };
  kvcts.reproLine = (run, id, tries, asRun) => run.repro[0] + kvcts.shellWord(id) + run.repro[1] +
      (tries > 1 ? ' --repeat ' + tries : '') + (asRun ? run.repro[2] : '');
  kvcts.shellWord = text => '\'' + text.replaceAll('\'', '\'\\\'\'') + '\'';

  const write = async text => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch (denied) {  // no permission, or no clipboard here: the older way
      const area = kvcts.el('textarea', {class: 'away', 'aria-hidden': 'true'});
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand('copy');
      area.remove();
      return done;
    }
  };
  /** A line to copy, with its button. */
  kvcts.copyLine = text => {
    const said = kvcts.el('span', {class: 'away', role: 'status'});
    const button = kvcts.el(
        'button', {
          type: 'button',
          class: 'copy-button',
          'aria-label': 'Copy: ' + text,
          onclick: async () => {
            const done = await write(text);
            button.textContent = done ? 'Copied' : 'Select it';
            said.textContent = done ? 'Copied' : 'Copying is not allowed here; select the text';
            setTimeout(() => {
              button.textContent = 'Copy';
              said.textContent = '';
            }, 2000);
          },
        },
        'Copy');
    return kvcts.el('div', {class: 'copy-line'}, kvcts.el('pre', {}, text), button, said);
  };
  /** A list of terms; rows without a value are left out. */
  kvcts.terms = rows => kvcts.el(
      'dl', {},
      rows.filter(([, value]) => value !== undefined && value !== null && value !== '')
          .map(([term, value]) => [kvcts.el('dt', {}, term), kvcts.el('dd', {}, value)]));
  /** A block that is made when it is first opened. */
  kvcts.later = (summary, make_content, attributes) => {
    const details = kvcts.el('details', attributes, kvcts.el('summary', {}, summary));
    details.addEventListener('toggle', () => {
      if (details.open && details.childElementCount === 1) details.append(make_content());
    });
    return details;
  };
}
