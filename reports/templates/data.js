// The run as data: columns out of <script id="data"> (report/case_data.hpp), and which cases are shown.
{
  const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  const digitOf = new Map([...digits].map((c, i) => [c, i]));

  /** Words a row, by number: {words, at} */
  const column = ({d, w, v}, n) => {
    const at = new Uint32Array(n);
    for (let i = 0; w > 0 && i < n; ++i) {
      let number = 0;
      for (let k = 0; k < w; ++k) number = number * 64 + digitOf.get(v[i * w + k]);
      at[i] = number;
    }
    return {words: d, at, of: i => d[at[i]]};
  };
  const ids = rows => {
    let last = '';
    return rows.map(row => last = typeof row === 'string' ? row : last.slice(0, row[0]) + row[1]);
  };

  /** Reads the page's data. */
  kvcts.read = json => {
    const run = {
      n: json.n,
      ids: ids(json.ids),
      us: json.us,
      details: json.details,
      axes: new Map(),
      suite: json.run.suite,
      messages: json.messages,
      planned: json.run.planned,
      repro: json.run.repro,
      strips: json.strips || {}
    };
    for (const name of ['outcome', 'verdict', 'evidence', 'ending', 'class', 'cause', 'section', 'ran'])
      run[name] = column(json[name], json.n);
    const order = json.vocabulary ? json.vocabulary.axes.map(axis => axis.name) : [];
    const names = Object.keys(json.axes).sort((a, b) => (order.indexOf(a) + 1 || 99) - (order.indexOf(b) + 1 || 99));
    for (const name of names) run.axes.set(name, column(json.axes[name], json.n));
    run.text = (i, name) => {
      const axis = run.axes.get(name);
      return axis ? axis.of(i) : '';
    };
    run.vocabulary = json.vocabulary ?
        new kvcts.Vocabulary(json.vocabulary) :
        kvcts.vocabularyOf(Object.fromEntries([...run.axes].map(([name, axis]) => [name, axis.words.filter(Boolean)])));
    run.troubled = i => ['failed', 'error'].includes(run.section.of(i));
    /** Did anything run for it? */
    run.executed = i => run.evidence.of(i) !== '';
    /** All that the text filter looks at, in small letters. Of a case without details the message is that of its cause. */
    run.words = i => [run.ids[i], run.ending.of(i), (run.details[i] || {}).message || run.messages[run.cause.of(i)] || '']
                         .join('\n')
                         .toLowerCase();
    return run;
  };

  /** Numbers of the rows for which the expression holds and `also(i)`, in order. Throws ExpressionError. */
  kvcts.select = (run, text, also) => {
    const root = text.trim() === '' ? null : kvcts.parse(text, run.vocabulary);
    const out = [];
    let row = 0;
    const axisText = name => run.text(row, name);
    const env = {name: ref => run.vocabulary.value(ref, axisText), id: () => run.ids[row]};
    for (row = 0; row < run.n; ++row) {
      if ((!also || also(row)) && (!root || kvcts.holds(root, env))) out.push(row);
    }
    return out;
  };

  /**
   * Of the sections in a cell of the matrix, the last is what the cell says: what ran says more than what did not, and the
   * worst of it most.
   */
  kvcts.severity = ['unsupported', 'notrun', 'skipped', 'fine', 'xpass', 'waived', 'error', 'failed'];
  kvcts.sectionWords = {
    fine: 'as expected',
    failed: 'not as expected',
    error: 'error of the suite',
    xpass: 'passed against a waiver',
    waived: 'waived',
    skipped: 'skipped',
    notrun: 'not run',
    unsupported: 'unsupported, as declared',
  };
}
