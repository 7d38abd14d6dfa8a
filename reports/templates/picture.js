// Drawings of a case: how both sides are laid out, which coordinate sits where, which blocks go where, and where runs of
// bytes came from. The data are `picture` of a result (reports/schema/results.schema.json, $defs/picture). Every colour is
// also a word or a number.
{
  const {el, svg, thousands} = kvcts;
  const axisWords = {L: 'layer', K: 'kv', B: 'block', N: 'slot', H: 'head', C: 'channel'};
  const letters = Object.keys(axisWords);
  const short = {L: 'L', B: 'b', N: 's', H: 'h', C: 'c'};
  const tints = 8;                                        // classes t0 .. t7 of the style sheet
  const perRow = () => window.innerWidth < 600 ? 8 : 16;  // cells that can be read side by side
  const digitText = (axis, value) => axis === 'K' ? (value === 0 ? 'K' : 'V') : short[axis] + value;
  const text = (x, y, content, attributes) => svg('text', {x, y, ...attributes}, content);
  const byteWords = bits => bits % 8 ? bits + ' bits' : thousands(bits / 8) + (bits === 8 ? ' byte' : ' bytes');

  // ---- the map --------------------------------------------------------------------------------------------------------

  /** Bits from a plane's first to behind its last. */
  const span = (plane, from = 0) =>
      plane.modes.slice(from).reduce((sum, [, extent, stride]) => sum + (extent - 1) * stride, plane.bits);
  const nested = plane => plane.modes.every((mode, i) => mode[2] > 0 && span(plane, i + 1) <= mode[2]);

  /** What lies at a bit: {plane, coord} or null. For planes whose loops are nested in memory; others have no drawing. */
  const lookAt = (region, bit) => {
    for (const plane of region.planes) {
      let rest = bit - plane.at;
      if (rest < 0 || rest >= span(plane) || !nested(plane)) continue;
      const coord = Object.fromEntries(letters.map((axis, i) => [axis, plane.origin[i]]));
      for (const [axis, extent, stride, step] of plane.modes) {
        const digit = Math.min(extent - 1, Math.floor(rest / stride));
        coord[axis] += digit * step;
        rest -= digit * stride;
      }
      if (rest < plane.bits) return {plane, coord};
    }
    return null;
  };
  /** The bit of a coordinate in a plane, or -1. */
  const bitOf = (plane, coord) => {
    let bit = plane.at;
    const rest = Object.fromEntries(letters.map((axis, i) => [axis, coord[axis] - plane.origin[i]]));
    for (const [axis, extent, stride, step] of [...plane.modes].sort((a, b) => b[3] - a[3])) {
      const digit = Math.floor(rest[axis] / step);
      if (digit < 0 || digit >= extent) return -1;
      rest[axis] -= digit * step;
      bit += digit * stride;
    }
    return letters.every(axis => rest[axis] === 0) ? bit : -1;
  };
  kvcts.layoutMap = {lookAt, bitOf, span};

  // ---- loops: each row is one cell of the row above, enlarged ----------------------------------------------------------

  const loops = plane => {
    const width = 400, high = 22, step = 52;
    const rows = plane.modes.length;
    const parts = [];
    plane.modes.forEach(([axis, extent, stride, unit], i) => {
      const y = 16 + i * step;
      const shown = extent <= 10 ? extent : 9, cell = width / (extent <= 10 ? extent : 10);
      // The part of a cell that the inner loops fill; the rest is padding, or belongs to others.
      const fill = Math.min(1, span(plane, i + 1) / stride);
      parts.push(text(
          0, y - 4,
          axisWords[axis] + ' × ' + extent + ', every ' + byteWords(stride) + (unit > 1 ? ', counting by ' + unit : ''),
          {class: 'note'}));
      for (let k = 0; k < shown; ++k) {
        const last = k === shown - 1 && shown < extent, x = (last ? 9 : k) * cell;
        const value = last ? extent - 1 : k;
        parts.push(svg('rect', {x, y, width: cell, height: high, class: 'pad'}));
        parts.push(
            svg('rect',
                {x, y, width: Math.max(1, cell * fill), height: high, class: 'axis-' + axis + (k === 0 ? ' first' : '')}));
        if (cell > 15) parts.push(text(x + cell * fill / 2, y + 15, digitText(axis, value * unit), {class: 'cell'}));
      }
      if (shown < extent) parts.push(text(8.5 * cell, y + 15, '…', {class: 'cell more-cells'}));
      const below = y + step - 14;
      const inner = cell * fill;
      parts.push(svg('path', {
        d: `M0 ${y + high} L${inner} ${y + high} L${i + 1 < rows ? width : 120} ${below - 2} L0 ${below - 2} Z`,
        class: 'zoom'
      }));
    });
    const y = 16 + rows * step;
    parts.push(text(0, y - 2, 'one element: ' + byteWords(plane.bits) + ' of ' + plane.dtype, {class: 'note'}));
    const said =
        plane.modes.map(([axis, extent, stride]) => axisWords[axis] + ' × ' + extent + ' every ' + byteWords(stride))
            .join(', then ');
    return svg(
        'svg',
        {viewBox: `0 0 ${width} ${y + 6}`, role: 'img', class: 'loops', 'aria-label': 'Loops from the outermost: ' + said},
        parts);
  };

  const regionTitle = (region, plane) => region.name + ': ' + (plane.component === 'data' ? '' : plane.component + ', ') +
      'from byte ' + thousands(plane.at / 8);
  const regionLoops = regions => {
    const shown = regions.flatMap(region => region.planes.map(plane => [region, plane]));
    return [
      shown.slice(0, 3).map(
          ([region, plane]) => el('figure', {}, el('figcaption', {}, regionTitle(region, plane)), loops(plane))),
      shown.length > 3 ? el('p', {class: 'quiet'}, 'and ' + kvcts.plural(shown.length - 3, 'more plane')) : null
    ];
  };

  // ---- bytes of a block, in the order of memory ------------------------------------------------------------------------

  const units = (region, bit, most) => {
    const out = [];
    const end = region.bytes * 8;
    while (out.length < most && bit < end) {
      const found = lookAt(region, bit);
      if (!found) {
        let next = bit + 8;
        while (next < end && !lookAt(region, next)) next += 8;
        out.push({bit, bits: next - bit, coord: null});
        bit = next;
        continue;
      }
      const inner = found.plane.modes.at(-1);
      const bits = inner && inner[2] === found.plane.bits ? inner[1] * inner[2] : found.plane.bits;
      out.push({
        bit,
        bits,
        coord: found.coord,
        component: found.plane.component,
        moving: inner && inner[2] === found.plane.bits ? inner : null
      });
      bit += bits;
    }
    return out;
  };
  const unitText = (unit, axis) => {
    if (!unit.coord) return '·';
    if (unit.component !== 'data') return '×';
    return axis === 'K' ? digitText('K', unit.coord.K) : String(unit.coord[axis]);
  };
  const unitWords = unit => {
    if (!unit.coord) return 'padding';
    const words =
        letters
            .map(axis => {
              const value = unit.coord[axis];
              if (axis === 'K') return digitText('K', value);
              return axisWords[axis] + ' ' +
                  (unit.moving && unit.moving[0] === axis ? value + '..' + (value + (unit.moving[1] - 1) * unit.moving[3]) :
                                                            value);
            })
            .join(' ');
    return unit.component === 'data' ? words : unit.component + ' of ' + words;
  };
  const tint = (unit, axis) => !unit.coord ? 'pad' : unit.component !== 'data' ? 'scale' : 't' + unit.coord[axis] % tints;

  const byteMap = (region, start, axis, wrong) => {
    const columns = perRow(), w = 25, h = 20, list = units(region, start, 128);
    const rows = Math.ceil(list.length / columns);
    const parts = list.map((unit, i) => {
      const x = i % columns * w, y = Math.floor(i / columns) * h;
      const hit = wrong.some(offset => offset * 8 >= unit.bit && offset * 8 < unit.bit + unit.bits);
      return svg(
          'g', {},
          svg('title', {},
              'bytes ' + thousands(Math.floor(unit.bit / 8)) + ' .. ' + thousands(Math.ceil((unit.bit + unit.bits) / 8)) +
                  ': ' + unitWords(unit) + (hit ? ' (wrong bytes here)' : '')),
          svg('rect', {x: x + .5, y: y + .5, width: w - 1, height: h - 1, class: tint(unit, axis)}),
          text(x + w / 2, y + 14, unitText(unit, axis), {class: 'cell'}),
          hit ? svg('rect', {x: x + 1.5, y: y + 1.5, width: w - 3, height: h - 3, class: 'wrong'}) : null);
    });
    const label = 'Bytes from ' + thousands(start / 8) + ' on, ' + axisWords[axis] +
        ' of each run in the order of memory: ' + list.slice(0, 48).map(unit => unitText(unit, axis)).join(' ') +
        (list.length > 48 ? ' and so on' : '');
    return svg('svg', {viewBox: `0 0 ${columns * w} ${rows * h}`, role: 'img', 'aria-label': label, class: 'bytes'}, parts);
  };

  // Which block of either side is looked at: that of the first wrong byte, else the first that is moved.
  const windows = (group, wrongOffsets) => {
    const moved = group.requests.find(r => r.moved && r.to.length && r.from.length);
    const there = {L: 0, K: 0, B: moved ? moved.to[0] : 0, N: 0, H: 0, C: 0};
    const region = group.consumer.regions[0];
    if (!region || !region.planes.length) return null;
    for (const offset of wrongOffsets) {
      const found = lookAt(region, offset * 8);
      if (!found) continue;
      there.B = found.coord.B, there.K = found.coord.K;
      break;
    }
    const here = {...there};
    const request = group.requests.find(r => r.to.includes(there.B));
    if (request) {
      const token = request.to.indexOf(there.B) * group.consumer.block_size;
      here.B = request.from[Math.floor(token / group.producer.block_size)] ?? here.B;
    }
    const begin = (side, coord) => {
      const plane = side.regions[0]?.planes[0];
      if (!plane) return null;
      // The lowest place of the block: all other coordinates at their origin.
      const at = Object.fromEntries(letters.map((axis, i) => [axis, plane.origin[i]]));
      for (const axis of ['B', 'K'])
        if (plane.modes.some(mode => mode[0] === axis)) at[axis] = coord[axis];
      const bit = bitOf(plane, at);
      return bit < 0 ? 0 : bit;
    };
    return {
      producer: begin(group.producer, here),
      consumer: begin(group.consumer, there),
      from: here.B,
      to: there.B,
      kv: there.K
    };
  };

  // ---- blocks ---------------------------------------------------------------------------------------------------------

  const blockMap = group => {
    const named = (key, count) => {
      if (count <= 16) return Array.from({length: count}, (_, i) => i);
      return [...new Set(group.requests.flatMap(r => r[key]))].sort((a, b) => a - b).slice(0, 16);
    };
    const from = named('from', group.producer.blocks), to = named('to', group.consumer.blocks);
    const w = 25, y = [18, 78], h = 20, width = 16 * w;
    const owner = (key, block) => group.requests.findIndex(r => r[key].includes(block));
    const row = (blocks, key, top) => blocks.map((block, i) => {
      const request = owner(key, block);
      return [
        svg('rect',
            {x: i * w + .5, y: top + .5, width: w - 1, height: h - 1, class: request < 0 ? 'free' : 't' + request % tints}),
        text(i * w + w / 2, top + 14, String(block), {class: 'cell'})
      ];
    });
    const lines = [], said = [];
    group.requests.forEach(request => {
      if (!request.moved) return;
      request.to.forEach((block, i) => {
        const source = request.from[Math.floor(i * group.consumer.block_size / group.producer.block_size)];
        const a = from.indexOf(source), b = to.indexOf(block);
        if (source !== undefined) said.push(source + ' to ' + block);
        if (a >= 0 && b >= 0)
          lines.push(svg('line', {x1: a * w + w / 2, y1: y[0] + h, x2: b * w + w / 2, y2: y[1], class: 'link'}));
      });
    });
    const sides = side => group[side].blocks > 16 ? ' (of ' + group[side].blocks + ', those that are named)' : '';
    return svg(
        'svg', {
          viewBox: `0 0 ${width} ${y[1] + h + 18}`,
          role: 'img',
          class: 'blocks',
          'aria-label': 'Blocks that are moved: ' + (said.join(', ') || 'none')
        },
        text(
            0, y[0] - 5, 'producer: blocks of ' + group.producer.block_size + ' tokens' + sides('producer'),
            {class: 'note'}),
        row(from, 'from', y[0]), lines, row(to, 'to', y[1]),
        text(
            0, y[1] + h + 14, 'consumer: blocks of ' + group.consumer.block_size + ' tokens' + sides('consumer'),
            {class: 'note'}));
  };

  // ---- moves ----------------------------------------------------------------------------------------------------------

  const moveAxes = ['rank', 'layer', 'kv', 'block', 'slot', 'head', 'channel', 'generation'];
  const isPlace = place => Array.isArray(place);
  const samePlace = (a, b) => isPlace(a) && isPlace(b) ? a.every((value, i) => value === b[i]) : a === b;
  const placeWords = place => isPlace(place) ?
      moveAxes.map((axis, i) => axis === 'kv' ? digitText('K', place[i]) : axis + ' ' + place[i])
          .slice(place[0] ? 0 : 1)
          .join(' ') :
      place;
  const differing = moves =>
      moveAxes.filter((axis, i) => moves.some(m => isPlace(m.should) && isPlace(m.did) && m.should[i] !== m.did[i]));

  /** Pairs of cells in the order of the destination: what should have come there, and what did. */
  const moveMap = (moves, axis) => {
    const at = moveAxes.indexOf(axis), columns = perRow(), w = 25, h = 18, gap = 14, high = 2 * h + gap;
    const cellText = place => !isPlace(place) ? '–' : axis === 'kv' ? digitText('K', place[at]) : String(place[at]);
    const cellClass = place => isPlace(place) ? 't' + place[at] % tints : 'pad';
    const parts = moves.map((move, i) => {
      const x = i % columns * w, y = Math.floor(i / columns) * high;
      const right = samePlace(move.should, move.did);
      return svg(
          'g', {},
          svg('title', {},
              move.region + ' + ' + thousands(move.offset) + ', ' + kvcts.plural(move.bytes, 'byte') + ': should be ' +
                  placeWords(move.should) + '; is ' + placeWords(move.did)),
          svg('rect', {x: x + .5, y: y + .5, width: w - 1, height: h - 1, class: cellClass(move.should)}),
          text(x + w / 2, y + 13, cellText(move.should), {class: 'cell'}),
          svg('rect', {x: x + .5, y: y + h + .5, width: w - 1, height: h - 1, class: cellClass(move.did)}),
          text(x + w / 2, y + h + 13, cellText(move.did), {class: 'cell'}),
          right ? null : svg('rect', {x: x + 1, y: y + 1, width: w - 2, height: 2 * h - 2, class: 'wrong'}),
          right ? null : svg('path', {d: `M${x + w / 2 - 4} ${y + 2 * h + 2} l8 8 m0 -8 l-8 8`, class: 'cross'}));
    });
    const rows = Math.ceil(moves.length / columns);
    const label = 'Byte ranges of the destination in order, ' + axis + ' that should be there and that is: ' +
        moves.slice(0, 32)
            .map(m => cellText(m.should) + (samePlace(m.should, m.did) ? ' right' : ' but ' + cellText(m.did)))
            .join(', ') +
        (moves.length > 32 ? ' and so on' : '');
    return svg(
        'svg', {viewBox: `0 0 ${columns * w} ${rows * high}`, role: 'img', 'aria-label': label, class: 'moves'}, parts);
  };

  const chooser = (label, options, chosen, redraw) => {
    const select =
        el('select', {onchange: () => redraw(select.value)},
           options.map(([value, words]) => el('option', {value, selected: value === chosen}, words)));
    return el('label', {class: 'chooser'}, label + ' ', select);
  };

  const movesFigure = picture => {
    const moves = picture.moves || [];
    if (moves.length === 0) return null;
    const wrong = moves.filter(m => !samePlace(m.should, m.did));
    const axes = differing(moves);
    const axis = axes.find(a => a !== 'channel') || axes[0] || 'head';
    const holder = el('div', {class: 'drawing'});
    const draw = chosen => holder.replaceChildren(moveMap(moves, chosen));
    draw(axis);
    const facts = wrong.length === 0 ?
        'All ' + kvcts.plural(moves.length, 'byte range') + ' shown came from the right place.' :
        thousands(wrong.length) + ' of ' + kvcts.plural(moves.length, 'byte range') + ' shown came from elsewhere' +
            (axes.length ? '; they differ in ' + axes.join(', ') : '') + '.';
    const source = picture.moves_from === 'plan' ?
        ' By the copies of the plan: where bytes were taken from, by the producer’s declared layout.' :
        ' Decoded from the bytes that arrived.';
    const left = picture.bytes_left_out ? ' ' + thousands(picture.bytes_left_out) + ' further bytes are not shown.' : '';
    return el(
        'figure', {class: 'moves-figure'},
        el('figcaption', {}, el('strong', {}, 'Where bytes came from. '), facts + source + left,
           el('span', {class: 'legend'},
              'Upper cell: what belongs there. Lower cell: what is there. A frame and a cross mark the difference. ')),
        chooser('Number and colour:', moveAxes.map(a => [a, a]), axis, draw), holder,
        wrong.length ?
            kvcts.later(
                'the first wrong byte ranges in words',
                () => el(
                    'div', {class: 'wide'},
                    el('table', {}, el('caption', {}, 'Byte ranges that came from elsewhere'),
                       el('thead', {},
                          el('tr', {}, ['Destination', 'Bytes', 'Should be', 'Is'].map(h => el('th', {scope: 'col'}, h)))),
                       el('tbody', {},
                          wrong.slice(0, 16).map(
                              m =>
                                  el('tr', {}, el('td', {}, el('code', {}, m.region + ' + ' + thousands(m.offset))),
                                     el('td', {class: 'n'}, thousands(m.bytes)), el('td', {}, placeWords(m.should)),
                                     el('td', {}, placeWords(m.did)))))))) :
            null);
  };

  // ---- all of it ------------------------------------------------------------------------------------------------------

  const sideTitle = (words, side) =>
      el('h5', {}, words + ': ', el('code', {}, side.layout),
         el('span', {class: 'quiet'}, ' ' + side.text + (side.ranks > 1 ? '; rank 0 of ' + side.ranks : '')));

  /** Drawings of one case. `wrong`: rows of its table of wrong bytes. */
  kvcts.picture = (picture, wrong) => {
    const group = picture.groups && picture.groups[0];
    if (!group) return movesFigure(picture) || el('p', {class: 'quiet'}, 'No drawing: the result carries no layouts.');
    const offsets = (wrong || [])
                        .filter(row => group.consumer.regions.some((region, i) => i === 0 && region.name === row[1]))
                        .map(row => row[2]);
    const at = windows(group, offsets);
    // The axis that tells most: the first in which bytes came from the wrong place.
    const telling = ['B', 'K', 'H', 'N', 'C'].find(axis => differing(picture.moves || []).includes(axisWords[axis])) || 'H';
    const sides = ['producer', 'consumer'].map(key => {
      const side = group[key], region = side.regions[0];
      const holder = el('div', {class: 'drawing'});
      const draw = axis => holder.replaceChildren(
          region && at && at[key] !== null ? byteMap(region, at[key], axis, key === 'consumer' ? offsets : []) :
                                             el('p', {class: 'quiet'}, 'not drawn'));
      draw(telling);
      return {key, side, draw, holder};
    });
    const redraw = axis => sides.forEach(side => side.draw(axis));
    return el(
        'div', {class: 'picture'}, movesFigure(picture), el('h4', {}, 'Bytes of one block, in the order of memory'),
        el('p', {class: 'quiet'},
           at ? 'Producer block ' + at.from + ', consumer block ' + at.to +
                   ': each cell is a range of neighbouring bytes, 128 of them from the block’s first byte.' +
                   (offsets.length ? ' A frame marks where the first wrong bytes are.' : '') :
                ''),
        chooser('Number and colour:', letters.slice(1).map(axis => [axis, axisWords[axis]]), telling, redraw),
        el('div', {class: 'sides'},
           sides.map(
               ({key, side, holder}) => el(
                   'figure', {}, el('figcaption', {}, key + ', ' + (side.regions[0] ? side.regions[0].name : '')), holder))),
        group.requests.some(r => r.moved) ?
            [el('h4', {}, 'Blocks'), el('div', {class: 'sides'}, el('figure', {}, blockMap(group)), requestList(group))] :
            null,
        el('h4', {}, 'Layouts'), el('p', {class: 'quiet'}, 'Each row is the first cell of the row above, enlarged.'),
        el('div', {class: 'sides'},
           sides.map(
               ({key, side}) =>
                   el('div', {}, sideTitle(key, side), regionLoops(side.regions),
                      side.claimed ? [el('h5', {}, 'What the connector was given instead'), regionLoops(side.claimed)] :
                                     null))),
        picture.groups.length > 1 ? el('p', {class: 'quiet'}, 'Group 0 of ' + picture.groups.length + ' is drawn.') : null);
  };

  const requestList = group =>
      el('ul', {class: 'requests'},
         group.requests.map(
             (r, i) =>
                 el('li', {}, el('span', {class: 'swatch t' + i % tints, 'aria-hidden': 'true'}),
                    'request ' + (i + 1) + ': ' + kvcts.plural(r.tokens, 'token') + ', generation ' + r.generation +
                        (r.moved ? '' : ', not moved') + '; blocks ' + r.from.join(' ') +
                        (r.to.length ? ' → ' + r.to.join(' ') : ''))));
}
