// Axis expressions, as harness/matrix/expr.hpp has them: same grammar, same answers, same errors. A test holds both against
// one list of expressions (harness/cli/report/expressions.txt). Texts are handled as bytes of UTF-8, one character a byte,
// so that columns agree.
{
  const maxText = 4096, maxNesting = 64;
  const low = -(1n << 63n), high = (1n << 63n) - 1n;
  const bytes = text => /^[\0-\x7f]*$/.test(text) ? text : String.fromCharCode(...new TextEncoder().encode(text));
  const unbytes = text =>
      /^[\0-\x7f]*$/.test(text) ? text : new TextDecoder().decode(Uint8Array.from(text, c => c.charCodeAt(0)));

  class ExpressionError extends Error {
    constructor(message, column) {
      super(unbytes(message));
      this.column = column;  // from 0, in bytes
    }
  }
  kvcts.ExpressionError = ExpressionError;

  // ---- names ----------------------------------------------------------------------------------------------------------

  const distance = (a, b) => {  // optimal string alignment
    const d = Array.from({length: a.length + 1}, (_, i) => [i]);
    for (let j = 0; j <= b.length; ++j) d[0][j] = j;
    for (let i = 1; i <= a.length; ++i) {
      for (let j = 1; j <= b.length; ++j) {
        const cost = a[i - 1] === b[j - 1] ? 0 : 1;
        d[i][j] = Math.min(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + cost);
        if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
          d[i][j] = Math.min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
    return d[a.length][b.length];
  };
  const nearest = (wrong, candidates) => {
    if (wrong.length > 64) return '';
    let best = '', bestDistance = Infinity;
    for (const candidate of candidates) {
      if (candidate.length > 64) continue;
      const d = distance(wrong, candidate);
      if (d < bestDistance) bestDistance = d, best = candidate;
    }
    return bestDistance <= Math.max(2, Math.floor(Math.min(wrong.length, best.length) / 3)) ? best : '';
  };
  const suggestion = (wrong, candidates) => {
    const near = nearest(wrong, candidates);
    if (near !== '') return '; did you mean \'' + near + '\'?';
    if (candidates.length === 0) return '; none is known';
    return '; known: ' + candidates.slice(0, 12).join(', ') +
        (candidates.length > 12 ? ', ... (' + candidates.length + ' in all)' : '');
  };

  const archOrder = text => {
    const digits = text.startsWith('sm_') ? text.slice(3) : text;
    if (!/^-?[0-9]+$/.test(digits)) return -1n;
    const cc = BigInt(digits);
    return cc > 0n && cc <= high ? cc : -1n;
  };

  /** Axes, values and facts, out of the page's vocabulary (report/vocabulary.hpp). */
  class Vocabulary {
    constructor(json) {
      this.axes = new Map();
      for (const one of json.axes) {
        const like = one.like ? this.axes.get(one.like) : null;
        const axis = {
          name: one.name,
          type: one.type,
          open: one.open,
          fallback: one.default,
          values: like ? ['same', ...like.values] : one.values,
          facts: new Map()
        };
        for (const fact of like ? [] : one.facts) axis.facts.set(fact.name, {type: fact.type, d: fact.d, v: fact.v});
        if (like)
          for (const [name, fact] of like.facts) axis.facts.set(name, {type: fact.type, d: fact.d, v: [-1, ...fact.v]});
        axis.numbers = new Map(axis.values.map((value, i) => [value, i]));
        this.axes.set(one.name, axis);
      }
    }
    names() { return [...this.axes.keys()]; }
    isName(word) { return this.axes.has(word.split('.', 1)[0]); }
    resolve(word) {
      const dot = word.indexOf('.');
      const axis = this.axes.get(dot < 0 ? word : word.slice(0, dot));
      if (dot < 0) return {axis: axis.name, fact: '', type: axis.type};
      const name = word.slice(dot + 1);
      const fact = axis.facts.get(name);
      if (!fact)
        throw new Error(
            'expected a fact of axis \'' + axis.name + '\', found \'' + word + '\'' +
            suggestion(name, [...axis.facts.keys()]));
      return {axis: axis.name, fact: name, type: fact.type};
    }
    /** All texts that a name can take. */
    textsOf(ref) {
      const axis = this.axes.get(ref.axis);
      if (!ref.fact) return axis.open ? [] : axis.values;
      const out = new Set();
      for (const value of axis.facts.get(ref.fact).d) {
        if (typeof value === 'string') out.add(value);
        if (Array.isArray(value)) value.forEach(item => out.add(item));
      }
      return [...out].sort((a, b) => a < b ? -1 : 1);
    }
    /** A fact of one value of an axis; null = the catalogue says nothing of it. */
    fact(axisName, factName, text) {
      const axis = this.axes.get(axisName), number = axis.numbers.get(text);
      const fact = axis.facts.get(factName);
      if (number === undefined || !fact) return null;
      const at = fact.v[number];
      if (at === undefined || at < 0) return null;
      const value = fact.d[at];
      return typeof value === 'number' ? BigInt(value) : value;
    }
    /** The value of a name for a case that says text(axis) of its axes ('' = nothing), as matrix::lookup_of. */
    value(ref, text) {
      const own = text(ref.axis);
      const replaced = fact => {
        const t = text('geometry.' + fact);
        return t === '' ? null : BigInt(t);
      };
      if (ref.fact) {
        if (ref.axis === 'geometry' && replaced(ref.fact) !== null) return replaced(ref.fact);
        return own === '' ? null : this.fact(ref.axis, ref.fact, own);
      }
      if (own === '' && (ref.axis === 'pbs' || ref.axis === 'cbs')) {
        if (replaced('block_size') !== null) return replaced('block_size');
        return text('geometry') === '' ? null : this.fact('geometry', 'block_size', text('geometry'));
      }
      if (own === '') return null;
      return this.axes.get(ref.axis).open ? BigInt(own) : own;
    }
  }
  kvcts.Vocabulary = Vocabulary;

  /** A vocabulary without a catalogue: axes and values as they occur in the run, no facts. */
  kvcts.vocabularyOf = columns => new Vocabulary({
    axes: Object.entries(columns).filter(([name]) => !name.includes('.')).map(([name, values]) => {
      const open = values.every(value => /^[0-9]+$/.test(value));
      return {
        name,
        type: name === 'arch' ? 'arch' :
            open              ? 'integer' :
                                'text',
        open,
        default: '',
        values: open ? [] : values,
        facts: []
      };
    })
  });

  // ---- parsing --------------------------------------------------------------------------------------------------------

  const typeWords =
      {none: 'nothing', boolean: 'true or false', integer: 'a number', text: 'text', arch: 'an arch', list: 'a list'};
  const orders = new Set(['<', '<=', '>', '>=']);
  const isSpace = c => c !== undefined && ' \t\n\v\f\r'.includes(c);
  const isStart = c => c !== undefined && /^[A-Za-z_]$/.test(c);
  const isWord = c => c !== undefined && /^[A-Za-z0-9_.]$/.test(c);
  const isDigit = c => c !== undefined && c >= '0' && c <= '9';

  class Parser {
    constructor(text, vocabulary) {
      this.text = bytes(text);
      this.vocabulary = vocabulary;
      this.at = 0;
      this.depth = 0;
    }
    parse() {
      if (this.text.length > maxText) this.fail(0, 'at most ' + maxText + ' characters', 'more');
      const root = this.disjunction();
      this.skip();
      if (this.at < this.text.length) this.fail(this.at, 'the end, && or ||', this.shown());
      this.expectBoolean(root);
      return root;
    }
    fail(column, expected, found, hint = '') {
      throw new ExpressionError(
          'expression \'' + this.text.slice(0, 200) + '\', column ' + (column + 1) + ': expected ' + expected + ', found ' +
              found + hint,
          column);
    }
    shown() {
      if (this.at >= this.text.length) return 'the end';
      return '\'' + this.text.slice(this.at, this.at + 20).replace(/[\0-\x1f]/g, ' ') + '\'';
    }
    skip() {
      while (isSpace(this.text[this.at])) ++this.at;
    }
    take(token) {
      this.skip();
      if (!this.text.startsWith(token, this.at)) return false;
      this.at += token.length;
      return true;
    }
    takeWord(word) {
      this.skip();
      if (!this.text.startsWith(word, this.at) || isWord(this.text[this.at + word.length])) return false;
      this.at += word.length;
      return true;
    }
    deeper(inside) {
      if (++this.depth > maxNesting) this.fail(this.at, 'at most ' + maxNesting + ' levels', 'a deeper one');
      const node = inside();
      --this.depth;
      return node;
    }
    node(op, type, column, ...children) { return {op, type, column, children}; }

    expectBoolean(node) {
      if (node.type !== 'boolean')
        this.fail(node.column, 'something that is true or false', this.what(node), this.hint(node));
    }
    expectInteger(node) {
      if (node.type !== 'integer') this.fail(node.column, 'a number', this.what(node), this.hint(node));
    }
    what(node) { return node.op === 'constant' && node.bare ? 'the word \'' + node.value + '\'' : typeWords[node.type]; }
    hint(node) {
      if (node.op !== 'constant' || !node.bare) return node.type === 'text' ? '; compare it, e.g. == value' : '';
      return suggestion(String(node.value), this.vocabulary.names());
    }

    disjunction() {
      return this.deeper(() => {
        let left = this.conjunction();
        for (;;) {
          this.skip();
          const column = this.at;
          if (!this.take('||')) return left;
          this.expectBoolean(left);
          const right = this.conjunction();
          this.expectBoolean(right);
          left = this.node('||', 'boolean', column, left, right);
        }
      });
    }
    conjunction() {
      let left = this.negation();
      for (;;) {
        this.skip();
        const column = this.at;
        if (!this.take('&&')) return left;
        this.expectBoolean(left);
        const right = this.negation();
        this.expectBoolean(right);
        left = this.node('&&', 'boolean', column, left, right);
      }
    }
    negation() {
      return this.deeper(() => {
        this.skip();
        const column = this.at, next = this.text[this.at + 1];
        if (this.text[this.at] === '!' && next !== '=' && next !== '~') {
          ++this.at;
          const inner = this.negation();
          this.expectBoolean(inner);
          return this.node('!', 'boolean', column, inner);
        }
        return this.comparison();
      });
    }
    comparison() {
      const left = this.sum();
      this.skip();
      const column = this.at;
      for (const token of ['==', '!=', '<=', '>=', '<', '>', '!~', '~']) {
        if (!this.take(token)) continue;
        return token === '~' || token === '!~' ? this.glob(token, column, left) :
                                                 this.compare(token, column, left, this.sum());
      }
      if (this.takeWord('in')) return this.membership(column, left);
      if (this.take('=')) this.fail(column, '\'==\' to compare', '\'=\'');
      return left;
    }
    glob(op, column, left) {
      if (left.type !== 'text' && left.type !== 'arch')
        this.fail(left.column, 'text to the left of \'~\'', this.what(left), this.hint(left));
      this.skip();
      let pattern = '';
      const c = this.text[this.at];
      if (c === '"' || c === '\'') {
        pattern = this.quoted();
      } else {
        let brackets = 0;
        while (this.at < this.text.length && !isSpace(this.text[this.at]) &&
               (brackets > 0 || !')&|'.includes(this.text[this.at]))) {
          brackets += this.text[this.at] === '[' ? 1 : this.text[this.at] === ']' ? -1 : 0;
          pattern += this.text[this.at++];
        }
      }
      if (pattern === '') this.fail(this.at, 'a glob', this.shown());
      return {...this.node(op, 'boolean', column, left), pattern};
    }
    membership(column, left) {
      if (left.type === 'none' || left.type === 'list')
        this.fail(left.column, 'a single value to the left of \'in\'', this.what(left));
      this.skip();
      if (!this.take('[')) {
        const list = this.sum();
        if (list.type !== 'list') this.fail(list.column, 'a list, or a name that is one', this.what(list), this.hint(list));
        return this.node('in', 'boolean', column, left, list);
      }
      let out = null;
      do {
        const one = this.compare('==', column, left, this.sum());
        out = out ? this.node('||', 'boolean', column, out, one) : one;
      } while (this.take(','));
      if (!this.take(']')) this.fail(this.at, '\',\' or \']\'', this.shown());
      return out;
    }
    compare(op, column, left, right) {
      if (left.op === 'constant' && left.bare)
        this.fail(left.column, 'a name to the left of the comparison', this.what(left), this.hint(left));
      if (right.op === 'constant' && (right.bare || (right.type === 'text' && left.type === 'arch')))
        this.checkWord(left, right);
      const archLike = n => n.type === 'arch' || n.type === 'integer';
      const archs = (left.type === 'arch' || right.type === 'arch') && archLike(left) && archLike(right);
      if (!archs && left.type !== right.type)
        this.fail(right.column, typeWords[left.type] + ' (as on the left of the comparison)', this.what(right));
      if (orders.has(op) && !archs && left.type !== 'integer')
        this.fail(column, 'numbers or archs around an order', this.what(left));
      if (left.type === 'list') this.fail(left.column, 'a single value', this.what(left));
      return this.node(op, 'boolean', column, left, right);
    }
    // The word to the right of a comparison must be one that the left can be.
    checkWord(left, right) {
      const word = String(right.value);
      if (left.type === 'arch') {
        if (archOrder(word) < 0n && word !== 'cpu') this.fail(right.column, 'an arch (sm_NN or cpu)', '\'' + word + '\'');
        right.type = 'arch';
      }
      if (left.op !== 'name') return;
      if (left.type === 'arch' && archOrder(word) >= 0n) return;
      if (left.type !== 'text' && left.type !== 'arch') return;
      const known = this.vocabulary.textsOf(left.ref);
      if (!known.includes(word))
        this.fail(right.column, 'a value that the left can have', '\'' + word + '\'', suggestion(word, known));
    }
    arithmetic(operand, tokens) {
      let left = operand();
      for (;;) {
        this.skip();
        const column = this.at, op = tokens.find(token => this.take(token));
        if (!op) return left;
        this.expectInteger(left);
        const right = operand();
        this.expectInteger(right);
        left = this.node(op, 'integer', column, left, right);
      }
    }
    sum() { return this.arithmetic(() => this.product(), ['+', '-']); }
    product() { return this.arithmetic(() => this.unary(), ['*', '/', '%']); }
    unary() {
      return this.deeper(() => {
        this.skip();
        const column = this.at;
        if (this.take('-')) {
          const inner = this.unary();
          this.expectInteger(inner);
          return this.node('negate', 'integer', column, inner);
        }
        return this.primary();
      });
    }
    quoted() {
      const begin = this.at++, end = this.text.indexOf(this.text[begin], this.at);
      if (end < 0) this.fail(begin, 'a closing quote', 'the end');
      const out = this.text.slice(this.at, end);
      this.at = end + 1;
      return out;
    }
    primary() {
      this.skip();
      const column = this.at;
      if (this.take('(')) {
        const inner = this.disjunction();
        if (!this.take(')')) this.fail(this.at, '\')\'', this.shown());
        return inner;
      }
      if (this.at >= this.text.length) this.fail(this.at, 'a name or a value', this.shown());
      const c = this.text[this.at];
      if (c === '"' || c === '\'') return {...this.node('constant', 'text', column), value: this.quoted()};
      if (isDigit(c)) {
        let end = this.at;
        while (isDigit(this.text[end])) ++end;
        const value = BigInt(this.text.slice(this.at, end));
        if (value > high) this.fail(this.at, 'a number of 64 bits', this.shown());
        this.at = end;
        if (isWord(this.text[end])) this.fail(column, 'a whole number, or text in quotes', this.shown());
        return {...this.node('constant', 'integer', column), value};
      }
      if (!isStart(c)) this.fail(this.at, 'a name or a value', this.shown());
      let end = this.at;
      while (isWord(this.text[end]) || ((this.text[end] === '-' || this.text[end] === '+') && isWord(this.text[end + 1])))
        ++end;
      const word = this.text.slice(this.at, end);
      this.at = end;
      return this.word(word, column);
    }
    word(word, column) {
      if (word === 'true' || word === 'false') return {...this.node('constant', 'boolean', column), value: word === 'true'};
      if (word === 'id') return this.node('id', 'text', column);
      if (!this.vocabulary.isName(word)) return {...this.node('constant', 'text', column), value: word, bare: true};
      let ref;
      try {
        ref = this.vocabulary.resolve(word);
      } catch (error) {
        throw new ExpressionError(
            'expression \'' + this.text.slice(0, 200) + '\', column ' + (column + 1) + ': ' + error.message, column);
      }
      return {...this.node('name', ref.type, column), ref};
    }
  }
  /** Throws ExpressionError, whose message is that of the command line. */
  kvcts.parse = (text, vocabulary) => new Parser(text, vocabulary).parse();

  // ---- evaluation -----------------------------------------------------------------------------------------------------

  const matchesGlob = (glob, text) => {
    let g = 0, t = 0, star = -1, resume = 0;
    const setEnd = from => {
      let i = from + 1;
      if (glob[i] === '!') ++i;
      if (glob[i] === ']') ++i;
      return glob.indexOf(']', i);
    };
    while (t < text.length) {
      let one = false, next = g + 1;
      if (g < glob.length && glob[g] !== '*') {
        const end = glob[g] === '[' ? setEnd(g) : -1;
        if (glob[g] === '?') {
          one = true;
        } else if (end >= 0) {
          let i = g + 1, inside = false;
          const inverted = glob[i] === '!';
          if (inverted) ++i;
          for (; i < end; ++i) {
            if (i + 2 < end && glob[i + 1] === '-') {
              inside = inside || (glob[i] <= text[t] && text[t] <= glob[i + 2]);
              i += 2;
            } else {
              inside = inside || glob[i] === text[t];
            }
          }
          one = inside !== inverted;
          next = end + 1;
        } else {
          one = glob[g] === text[t];
        }
      }
      if (glob[g] === '*')
        star = g++, resume = t;
      else if (one)
        g = next, ++t;
      else if (star >= 0)
        g = star + 1, t = ++resume;
      else
        return false;
    }
    while (glob[g] === '*') ++g;
    return g === glob.length;
  };

  const orderKey = value => {
    if (typeof value === 'bigint') return value;
    if (typeof value === 'string') {
      const cc = archOrder(value);
      if (cc >= 0n) return cc;
    }
    return null;
  };
  // Absent is equal to nothing, and not unequal to anything either.
  const compareValues = (op, left, right) => {
    if (left === null || right === null) return false;
    const a = orderKey(left), b = orderKey(right);
    if (op === '==' || op === '!=') {
      const same = typeof left === typeof right ? left === right : a !== null && a === b;
      return same === (op === '==');
    }
    if (a === null || b === null) return false;
    return op === '<' ? a < b : op === '<=' ? a <= b : op === '>' ? a > b : a >= b;
  };
  const arithmetic = (op, a, b) => {
    if (typeof a !== 'bigint' || typeof b !== 'bigint') return null;
    if ((op === '/' || op === '%') && b === 0n) return null;
    if (op === '%' && b === -1n && a === low) return null;
    const out = op === '+' ? a + b : op === '-' ? a - b : op === '*' ? a * b : op === '/' ? a / b : a % b;
    return out < low || out > high ? null : out;
  };
  const valueText = value => typeof value === 'bigint' ? String(value) : value === null ? 'nothing' : String(value);

  const valueOf = (node, env) => {
    switch (node.op) {
      case 'constant':
        return node.value;
      case 'name':
        return env.name(node.ref);
      case 'id':
        return bytes(env.id());
      case 'negate':
        return arithmetic('-', 0n, valueOf(node.children[0], env));
      case '+':
      case '-':
      case '*':
      case '/':
      case '%':
        return arithmetic(node.op, valueOf(node.children[0], env), valueOf(node.children[1], env));
      default:
        return kvcts.holds(node, env);
    }
  };
  /** Is it true? env: name(ref) -> value (null = nothing), id() -> text. */
  kvcts.holds = (node, env) => {
    const children = node.children;
    switch (node.op) {
      case '&&':
        return kvcts.holds(children[0], env) && kvcts.holds(children[1], env);
      case '||':
        return kvcts.holds(children[0], env) || kvcts.holds(children[1], env);
      case '!':
        return !kvcts.holds(children[0], env);
      case '~':
      case '!~': {
        const value = valueOf(children[0], env);
        return (typeof value === 'string' && matchesGlob(node.pattern, value)) === (node.op === '~');
      }
      case 'in': {
        const list = valueOf(children[1], env);
        return Array.isArray(list) && list.includes(valueText(valueOf(children[0], env)));
      }
      case 'constant':
      case 'name':
        return valueOf(node, env) === true;
      default:
        return compareValues(node.op, valueOf(children[0], env), valueOf(children[1], env));
    }
  };
}
