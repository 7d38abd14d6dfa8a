// The list of cases: fifty a page, each opens.
{
  const {el, thousands, plural} = kvcts;
  const size = 50;

  /**
   * Fills #cases-view and returns update(rows), with update.open(i): shows case i among them. `opened(i)`: a case was
   * opened, or closed (null).
   */
  kvcts.cases = (run, opened) => {
    const holder = document.getElementById('cases-view');
    const body = el('tbody');
    const where = el('span', {role: 'status'});
    const button = (words, step) => el('button', {type: 'button', onclick: () => turn(step)}, words);
    const back = button('Previous', -1), on = button('Next', 1);
    let rows = [], page = 0;
    const line = i => {
      const row = el('tr', {class: run.troubled(i) ? 'bad' : null});
      const toggle =
          el('button', {
            type: 'button',
            class: 'open',
            'aria-expanded': 'false',
            onclick: () => {
              const open = row.nextElementSibling && row.nextElementSibling.classList.contains('opened');
              if (open)
                row.nextElementSibling.remove();
              else
                row.after(el('tr', {class: 'opened'}, el('td', {colspan: '5'}, kvcts.renderCase(run, i))));
              toggle.setAttribute('aria-expanded', String(!open));
              opened(open ? null : i);
            }
          },
             el('code', {}, run.ids[i]));
      row.append(
          el('th', {scope: 'row'}, toggle), el('td', {}, run.ending.of(i)), el('td', {}, run.verdict.of(i)),
          el('td', {}, run.evidence.of(i) || '–'),
          el('td', {class: 'n'}, run.us[i] ? kvcts.duration(run.us[i] * 1e3) : '–'));
      return row;
    };
    const draw = () => {
      body.replaceChildren(...rows.slice(page * size, (page + 1) * size).map(line));
      const last = Math.max(0, Math.ceil(rows.length / size) - 1);
      where.textContent = rows.length === 0 ? 'No case to show' :
                                              thousands(page * size + 1) + ' to ' +
              thousands(Math.min(rows.length, (page + 1) * size)) + ' of ' + plural(rows.length, 'case');
      back.disabled = page === 0;
      on.disabled = page >= last;
    };
    const turn = step => {
      page += step;
      draw();
      document.getElementById('cases').scrollIntoView();
    };
    holder.replaceChildren(
        el('table', {class: 'cases'}, el('caption', {class: 'away'}, 'Cases'),
           el('thead', {},
              el('tr', {},
                 ['Case', 'Ended', 'Verdict', 'Evidence', 'Time'].map(
                     h => el('th', {scope: 'col', class: h === 'Time' ? 'n' : null}, h)))),
           body),
        el('div', {class: 'pager'}, back, where, on));
    const update = chosen => {
      rows = chosen;
      page = 0;
      draw();
    };
    update.open = i => {
      const at = rows.indexOf(i);
      if (at < 0) return false;
      page = Math.floor(at / size);
      draw();
      const row = body.rows[at % size];
      row.querySelector('.open').click();
      row.scrollIntoView();
      return true;
    };
    return update;
  };
}
