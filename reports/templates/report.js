// Puts the page together.
{
  const {el, thousands} = kvcts;
  kvcts.start = () => {
    const run = kvcts.run = kvcts.read(JSON.parse(document.getElementById('data').textContent));
    document.documentElement.classList.add('with-script');
    for (const pre of document.querySelectorAll('pre.copy')) pre.replaceWith(kvcts.copyLine(pre.textContent));
    kvcts.fillCauses(run);

    const state = kvcts.addressed();
    const at = id => document.getElementById(id);
    const input = at('where'), error = at('where-error'), unknown = at('case-error'),
          filters = {section: at('by-section'), outcome: at('by-outcome'), class: at('by-class'), text: at('by-text')};
    const remember = () => kvcts.readdress(state);
    const narrow = conditions => {
      const old = input.value.trim();
      input.value = [old && (old.includes('||') ? '(' + old + ')' : old), ...conditions].filter(Boolean).join(' && ');
      apply();
      at('cases').scrollIntoView();
    };
    const cases = kvcts.cases(run, i => {
      state.case = i === null ? '' : run.ids[i];
      remember();
    });
    const views = [kvcts.matrix(run, narrow, state, remember), cases, kvcts.coverage(run)];

    // Choices are what this run has, with how many cases each.
    const choices = (key, none, words) => {
      const counts = new Map();
      for (let i = 0; i < run.n; ++i) counts.set(run[key].of(i), (counts.get(run[key].of(i)) || 0) + 1);
      filters[key].append(
          el('option', {value: ''}, none),
          ...[...counts]
              .filter(([value]) => value)
              .map(([value, n]) => el('option', {value}, words(value) + ' (' + thousands(n) + ')')));
    };
    choices('section', 'any', value => kvcts.sectionWords[value]);
    choices('outcome', 'any', value => value);
    choices('class', 'any', value => value);

    const apply = () => {
      const text = filters.text.value.trim().toLowerCase(),
            wanted = ['section', 'outcome', 'class'].filter(key => filters[key].value);
      const also = wanted.length || text ?
          i => wanted.every(key => run[key].of(i) === filters[key].value) && (!text || run.words(i).includes(text)) :
          null;
      let rows;
      try {
        rows = kvcts.select(run, input.value, also);
      } catch (problem) {
        if (!(problem instanceof kvcts.ExpressionError)) throw problem;
        input.setAttribute('aria-invalid', 'true');
        // The words of the command line, with a mark below the column.
        const message = problem.message.slice(problem.message.lastIndexOf(', column ') + 2);
        error.replaceChildren(
            el('pre', {'aria-hidden': 'true'},
               input.value.slice(0, 200) + '\n' +
                   ' '.repeat(Math.min(problem.column, 200)) + '^'),
            el('span', {}, message));
        error.hidden = false;
        return;
      }
      input.removeAttribute('aria-invalid');
      error.hidden = unknown.hidden = true;
      at('count').textContent = thousands(rows.length) + ' of ' + kvcts.plural(run.n, 'case');
      at('where-line')
          .replaceChildren(...(
              input.value.trim() ?
                  [kvcts.copyLine('kvcts list --suite ' + run.suite + ' --where ' + kvcts.shellWord(input.value.trim()))] :
                  []));
      kvcts.rows = rows;
      for (const view of views) view(rows);
      Object.assign(state, {
        where: input.value.trim(),
        text: filters.text.value.trim(),
        section: filters.section.value,
        outcome: filters.outcome.value,
        class: filters.class.value,
        case: ''
      });
      remember();
    };
    /** Shows what the address says; a case that its filter leaves out is shown without the filter. */
    const follow = () => {
      const asked = kvcts.addressed();
      const set = values => {
        input.value = values.where || '';
        for (const key of Object.keys(filters)) filters[key].value = values[key] || '';
        apply();
      };
      set(asked);
      if (!asked.case) return;
      const i = run.ids.indexOf(asked.case);
      if (i >= 0 && !kvcts.rows.includes(i)) set({});
      if (i >= 0 && cases.open(i)) return;
      unknown.textContent = 'The case ' + asked.case +' is not on this page; results.json has all cases of the run.';
      unknown.hidden = false;
      at('cases').scrollIntoView();
    };
    let later = 0;
    for (const field of [input, filters.text])
      field.addEventListener('input', () => {
        clearTimeout(later);
        later = setTimeout(apply, 150);
      });
    input.form.addEventListener('submit', event => {
      event.preventDefault();
      clearTimeout(later);
      apply();
    });
    input.form.addEventListener('reset', () => setTimeout(apply));
    for (const key of ['section', 'outcome', 'class']) filters[key].addEventListener('change', apply);
    addEventListener('hashchange', () => {
      if (location.hash.includes('=')) follow();
    });

    const axes = document.getElementById('axes');
    axes.append(...run.vocabulary.names().map(name => {
      const axis = run.vocabulary.axes.get(name), column = run.axes.get(name);
      return el(
          'li', {}, el('code', {}, name), ' ',
          el('span', {class: 'quiet'},
             column ? column.words.filter(Boolean).slice(0, 6).join(', ') + (column.words.length > 6 ? ', …' : '') :
                      'not in this run',
             axis.facts.size ? '; facts: ' + [...axis.facts.keys()].slice(0, 8).map(fact => '.' + fact).join(' ') +
                     (axis.facts.size > 8 ? ' …' : '') :
                               ''));
    }));
    follow();
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
  };
  if (document.getElementById('data')) kvcts.start();
  window.kvcts = kvcts;
}
