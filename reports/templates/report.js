// Puts the page together.
{
  const {el, thousands} = kvcts;
  kvcts.start = () => {
    const run = kvcts.run = kvcts.read(JSON.parse(document.getElementById('data').textContent));
    document.documentElement.classList.add('with-script');
    for (const pre of document.querySelectorAll('pre.copy')) pre.replaceWith(kvcts.copyLine(pre.textContent));
    kvcts.fillCauses(run);

    const input = document.getElementById('where'), show = document.getElementById('show'), error = document.getElementById('where-error'), count = document.getElementById('count'), line = document.getElementById('where-line');
    const narrow = conditions => {
      const old = input.value.trim();
      input.value = [old && (old.includes('||') ? '(' + old + ')' : old), ...conditions].filter(Boolean).join(' && ');
      apply();
      document.getElementById('cases').scrollIntoView();
    };
    const views = [kvcts.matrix(run, narrow), kvcts.cases(run), kvcts.coverage(run)];

    const sections = new Map(), outcomes = new Map();
    for (let i = 0; i < run.n; ++i) {
      sections.set(run.section.of(i), (sections.get(run.section.of(i)) || 0) + 1);
      outcomes.set(run.outcome.of(i), (outcomes.get(run.outcome.of(i)) || 0) + 1);
    }
    show.append(el('option', {value: ''}, 'all cases (' + thousands(run.n) + ')'),
      el('optgroup', {label: 'Verdict'}, [...sections].map(([key, n]) => el('option', {value: 'section ' + key}, kvcts.sectionWords[key] + ' (' + thousands(n) + ')'))),
      el('optgroup', {label: 'Outcome'}, [...outcomes].map(([key, n]) => el('option', {value: 'outcome ' + key}, key + ' (' + thousands(n) + ')'))));

    const apply = () => {
      const [column, value] = show.value.split(' ');
      let rows;
      try {
        rows = kvcts.select(run, input.value, column ? i => run[column].of(i) === value : null);
      } catch (problem) {
        if (!(problem instanceof kvcts.ExpressionError)) throw problem;
        input.setAttribute('aria-invalid', 'true');
        // The words of the command line, with a mark below the column.
        const message = problem.message.slice(problem.message.lastIndexOf(', column ') + 2);
        error.replaceChildren(el('pre', {'aria-hidden': 'true'}, input.value.slice(0, 200) + '\n' + ' '.repeat(Math.min(problem.column, 200)) + '^'), el('span', {}, message));
        error.hidden = false;
        return;
      }
      input.removeAttribute('aria-invalid');
      error.hidden = true;
      count.textContent = thousands(rows.length) + ' of ' + kvcts.plural(run.n, 'case');
      line.replaceChildren(...(input.value.trim() ? [kvcts.copyLine('kvcts list --suite ' + run.suite + ' --where ' + kvcts.shellWord(input.value.trim()))] : []));
      kvcts.rows = rows;
      for (const view of views) view(rows);
    };
    let later = 0;
    input.addEventListener('input', () => { clearTimeout(later); later = setTimeout(apply, 150); });
    input.form.addEventListener('submit', event => { event.preventDefault(); clearTimeout(later); apply(); });
    input.form.addEventListener('reset', () => setTimeout(apply));
    show.addEventListener('change', apply);

    const axes = document.getElementById('axes');
    axes.append(...run.vocabulary.names().map(name => {
      const axis = run.vocabulary.axes.get(name), column = run.axes.get(name);
      return el('li', {}, el('code', {}, name), ' ', el('span', {class: 'quiet'}, column ? column.words.filter(Boolean).slice(0, 6).join(', ') + (column.words.length > 6 ? ', …' : '') : 'not in this run',
        axis.facts.size ? '; facts: ' + [...axis.facts.keys()].slice(0, 8).map(fact => '.' + fact).join(' ') + (axis.facts.size > 8 ? ' …' : '') : ''));
    }));
    apply();
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
  };
  if (document.getElementById('data')) kvcts.start();
  window.kvcts = kvcts;
}
