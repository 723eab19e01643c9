// The cards of the page, the table of runs and the bar of choices, put together.

/** Two buttons, one of them pressed. */
function choice(names, isSecond, change) {
  const box = html('div', {class: 'choice', role: 'group'});
  const press = () => [...box.children].forEach((each, i) =>
    each.setAttribute('aria-pressed', isSecond() === !!i));
  names.forEach((name, i) => box.append(html('button', {type: 'button', onclick: () => {
    change(!!i);
    press();
  }}, name)));
  press();
  return box;
}

const cards = [];
const drawAll = () => cards.forEach(card => card.draw());

const cardOf = (title, more, ...children) => html('div', {class: 'card'},
  html('header', {}, html('h3', {}, title), more), ...children);

function chartCard(chart) {
  const [, metric, title] = chart;
  const card = {plot: svg('svg', {class: 'plot', height: kHeight, role: 'img'}),
    tip: html('div', {class: 'tip', hidden: ''})};
  card.draw = () => draw(card, chart);
  const move = event => card.hover(event.clientX - card.plot.getBoundingClientRect().left);
  for (const kind of ['pointermove', 'pointerdown']) card.plot.addEventListener(kind, move);
  // A finger leaves when it is lifted: its values stay until it touches another place.
  card.plot.addEventListener('pointerleave',
    event => event.pointerType === 'touch' || card.hover());
  addEventListener('pointerdown', event => card.plot.contains(event.target) || card.hover());
  const scale = choice(['linear', 'log'], () => logarithmic.has(metric), isLog => {
    isLog ? logarithmic.add(metric) : logarithmic.delete(metric);
    card.draw();
  });
  scale.setAttribute('aria-label', `Scale of ${title}`);
  cards.push(card);
  const made = cardOf(title, scale, card.plot, card.tip);
  made.dataset.metric = metric;
  return made;
}

const swatch = run => svg('svg', {width: 18, height: 8, 'aria-hidden': 'true'},
  svg('line', {x1: 0, x2: 18, y1: 4, y2: 4, stroke: run.colour, 'stroke-width': 3,
    'stroke-dasharray': run.dash || undefined}));

/** Bars by row and run: rows are [label, value of a run]; `total` gives what they are shares of. */
function barsCard(title, note, unit, rows, total = () => 0) {
  const body = html('div', {class: 'parts'});
  const bar = (run, value, most) => {
    const share = total(run) ? `, ${(100 * value / total(run)).toFixed(1)} %` : '';
    const style = `width:${(58 * value / most).toFixed(2)}%;background:${run.colour}`;
    return html('i', {title: run.name}, html('b', {style}), amount(value, unit, 3) + share);
  };
  cards.push({draw: () => {
    const most = Math.max(...seen().flatMap(run => rows.map(row => row[1](run) || 0)), 1e-300);
    body.replaceChildren(...rows.filter(row => seen().some(row[1])).map(([label, of]) =>
      html('div', {class: 'part'}, label, ...seen().filter(run => of(run) !== undefined)
        .map(run => bar(run, of(run), most)))));
  }});
  return cardOf(title, undefined, html('p', {}, note), body);
}

/** Rows of bars of the metrics that begin so; a value that is 0 is none. */
function rowsOf(prefix, value) {
  const all = runs.flatMap(run => Object.keys(run.series));
  const names = new Set(all.filter(name => name.startsWith(prefix)));
  const label = name => name.slice(prefix.length).replace('forward_', 'forward and ');
  return [...names].map(name => [label(name).replaceAll('_', ' '),
    run => run.series[name] && value(run, run.series[name]) || undefined]);
}

function timeCards() {
  const aStep = (run, series) => series.mean * series.count / run.lines;
  const rows = rowsOf('seconds_of.', aStep);
  const total = run => Object.keys(run.series)
    .filter(name => name.startsWith('seconds_of.') && name !== 'seconds_of.collectives')
    .reduce((sum, name) => sum + aStep(run, run.series[name]), 0);
  return rows.length ? [barsCard('Time by part of a step',
    'Mean over all steps, on rank 0. Collectives are also part of the others.', 's', rows,
    total)] : [];
}

function memoryCards() {
  const rows = rowsOf('peak_bytes_of.', (run, series) => series.max);
  return rows.length ? [barsCard('Peak memory by purpose',
    'Of rank 0. Purposes peak at different times: their sum may be above the peak.', 'B',
    rows)] : [];
}

function heatCard(run) {
  const wide = Math.max(...run.load.map(layer => layer.length));
  const cell = Math.max(5, Math.min(26, 340 / wide)), tall = Math.min(16, cell);
  const bottom = run.load.length * tall;
  const picture = svg('svg', {width: 34 + wide * cell, height: bottom + 18, role: 'img',
    'aria-label': 'load of experts of ' + run.name});
  const relative = run.load.map(layer => {
    const mean = layer.reduce((a, b) => a + b, 0) / layer.length;
    return layer.map(rows => mean ? rows / mean : 0);
  });
  const most = Math.max(2, ...relative.map(layer => Math.max(...layer)));
  const every = Math.ceil(12 / tall);
  relative.forEach((layer, i) => {
    if (i % every === 0) {
      picture.append(svg('text', {x: 24, y: (i + .5) * tall + 4, 'text-anchor': 'end'}, i));
    }
    layer.forEach((load, k) => {
      const part = (100 * load / most).toFixed(1);
      const about = `${whole(run.load[i][k])} rows, ${load.toFixed(2)} x mean`;
      picture.append(svg('rect', {x: 30 + k * cell, y: i * tall, width: cell - .6,
        height: tall - .6, style: `fill:color-mix(in srgb, ${run.colour} ${part}%, var(--raised))`},
        svg('title', {}, `layer ${i}, expert ${k}: ${about}`)));
    });
  });
  picture.append(svg('text', {x: 30, y: bottom + 14}, `experts 0 to ${wide - 1}`));
  const name = runs.length > 1 ? html('small', {}, short(run.name, 24)) : undefined;
  return cardOf('Load of experts, last step', name, html('p', {}, 'A row is a sparse layer, a ' +
    `column an expert; the strongest colour is ${most.toFixed(1)} times the mean.`),
    html('div', {class: 'heat'}, picture));
}

/** Columns of the table: title, metric, statistic, unit; 1: less is better, -1: more is. */
const columns = [
  ['Best validation', 'val_loss', 'min', '', 1],
  ['Last loss', 'loss', 'last', '', 1],
  ['Tokens/s', 'tokens_per_second', 'mean', '', -1],
  ['MFU', 'mfu', 'mean', '%', -1],
  ['Peak memory', 'peak_bytes', 'max', 'B', 1],
  ['Time', 'seconds', 'max', 's', 0],
];

function summary() {
  const shown = columns.filter(([, metric]) => runs.some(run => run.series[metric]));
  const value = (run, [, metric, statistic]) => run.series[metric]?.[statistic];
  const isBest = (run, column) => {
    const others = runs.filter(other => other !== run && value(other, column) !== undefined);
    return others.length > 0 && others.every(other =>
      column[4] * value(run, column) < column[4] * value(other, column));
  };
  const cell = (run, column) => {
    const [title, metric, , unit] = column, has = value(run, column);
    const step = metric === 'val_loss' && has !== undefined ?
      ' at ' + whole(run.series[metric].minStep) : '';
    return html('td', {'data-name': title, class: isBest(run, column) ? 'best' : undefined},
      has === undefined ? '–' : amount(has, unit, metric.endsWith('loss') ? 4 : 3) + step);
  };
  const titles = ['Run', 'Steps', ...shown.map(column => column[0])];
  return html('table', {},
    html('thead', {}, html('tr', {}, ...titles.map(title => html('th', {}, title)))),
    html('tbody', {}, ...runs.map(run => html('tr', {},
      html('td', {}, html('span', {class: 'run'}, swatch(run),
        html('span', {title: run.path}, run.name))),
      html('td', {'data-name': 'Steps'}, whole(run.last)),
      ...shown.map(column => cell(run, column))))));
}

function legendButton(run) {
  const button = html('button', {type: 'button', class: 'run', 'aria-pressed': true,
    title: run.path, onclick: () => {
      hidden.has(run) ? hidden.delete(run) : hidden.add(run);
      button.setAttribute('aria-pressed', !hidden.has(run));
      drawAll();
    }}, swatch(run), html('span', {}, run.name));
  return button;
}

function toolbar() {
  const bar = html('div', {id: 'bar'});
  if (runs.length > 1) bar.append(html('div', {id: 'legend'}, ...runs.map(legendButton)));
  if (runs.some(run => run.series.seconds)) {
    bar.append(choice(['steps', 'time'], () => axis === 'time', isTime => {
      axis = isTime ? 'time' : 'step';
      drawAll();
    }));
  }
  const slider = html('input', {type: 'range', min: 0, max: 0.98, step: 0.02, value: 0,
    oninput: event => {
      smoothing = +event.target.value;
      drawAll();
    }});
  bar.append(html('label', {}, 'Smoothing', slider));
  return bar;
}

const heading = runs.length > 1 ? `${runs.length} training runs` : runs[0]?.name || 'No runs';
document.body.append(html('h1', {}, heading), summary(),
  ...runs.flatMap(run => run.notes.map(note => html('p', {}, `${run.name}: ${note}.`))),
  toolbar());
const others = {Speed: timeCards, Memory: memoryCards,
  Experts: () => runs.filter(run => run.load.length).map(heatCard)};
for (const section of new Set(charts.map(chart => chart[0]))) {
  const parts = charts.filter(([of, metric]) =>
    of === section && runs.some(run => run.series[metric])).map(chartCard);
  parts.push(...(others[section]?.() || []));
  if (parts.length === 0) continue;
  document.body.append(html('h2', {}, section), html('div', {class: 'charts'}, ...parts));
}
addEventListener('resize', drawAll);
drawAll();
