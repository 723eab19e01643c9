'use strict';
// The data of the page, how numbers are written, and how a chart is drawn.
const runs = JSON.parse(document.getElementById('data').textContent).runs;
const hidden = new Set(), logarithmic = new Set();
let axis = 'step', smoothing = 0;
const kHeight = 230;

// What is drawn: section, metric, title, unit, and the value that an axis begins with at most.
const charts = [
  ['Learning', 'loss', 'Loss'],
  ['Learning', 'val_loss', 'Validation loss'],
  ['Learning', 'lr', 'Learning rate', '', 0],
  ['Learning', 'grad_norm', 'Gradient norm', '', 0],
  ['Speed', 'tokens_per_second', 'Tokens per second', '', 0],
  ['Speed', 'mfu', 'Model FLOPs utilization', '%', 0],
  ['Speed', 'bytes_moved', 'Received from other ranks, a step', 'B', 0],
  ['Memory', 'peak_bytes', 'Peak memory so far', 'B', 0],
  ['Experts', 'experts.imbalance', 'Largest load of an expert, in means', '', 1],
  ['Experts', 'experts.dropped', 'Dropped choices of experts', '', 0],
  ['Experts', 'experts.balance_loss', 'Balance loss'],
];
const known = new Set(['step', 'seconds', ...charts.map(chart => chart[1])]);
for (const run of runs) for (const name of Object.keys(run.series)) {
  if (known.has(name) || /^(peak_bytes_of|seconds_of)\./.test(name)) continue;
  known.add(name);
  charts.push(['Other metrics', name, name]);
}
const dashes = ['', '7 3', '2 3', '9 3 2 3'];
runs.forEach((run, i) => {
  run.colour = `var(--run${i % 8})`;
  run.dash = dashes[Math.floor(i / 8) % 4];
});
const seen = () => runs.filter(run => !hidden.has(run));

function node(space, tag, attributes, children) {
  const made = space ? document.createElementNS('http://www.w3.org/2000/svg', tag)
                     : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter(child => child !== undefined));
  return made;
}
const html = (tag, attributes, ...children) => node(false, tag, attributes, children);
const svg = (tag, attributes, ...children) => node(true, tag, attributes, children);

function plain(value, digits) {
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size < 1e-3) return value.toExponential(Math.min(2, digits - 1)).replace(/\.?0+e/, 'e');
  if (size >= 1e4) {
    const power = Math.min(4, Math.floor(Math.log10(size * 1.0000001) / 3));
    return +(value / 1000 ** power).toPrecision(digits) + ['', 'k', 'M', 'G', 'T'][power];
  }
  return String(+value.toPrecision(digits));
}
function time(seconds) {
  if (seconds < 1e-3 && seconds > 0) return +(seconds * 1e6).toPrecision(3) + ' µs';
  if (seconds < 1 && seconds > 0) return +(seconds * 1e3).toPrecision(3) + ' ms';
  if (seconds < 60) return +seconds.toPrecision(3) + ' s';
  const two = whole => String(Math.floor(whole)).padStart(2, '0');
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  if (seconds < 86400 * 3) return `${Math.floor(seconds / 3600)} h ${two(seconds / 60 % 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${two(seconds / 3600 % 24)} h`;
}
function amount(value, unit, digits = 4) {
  if (unit === '%') return +(100 * value).toPrecision(digits) + ' %';
  if (unit === 's') return time(value);
  if (unit !== 'B') return plain(value, digits);
  const power = value >= 1e3 ? Math.min(5, Math.floor(Math.log10(value * 1.0000001) / 3)) : 0;
  return +(value / 1000 ** power).toPrecision(digits) + ['', ' k', ' M', ' G', ' T', ' P'][power] +
    (power ? 'B' : ' B');
}
const whole = value => Math.round(value).toLocaleString('en');

/** Seconds of a run at a step, between the recorded ones on a line. */
function secondsAt(run, step) {
  const {x, y} = run.series.seconds;
  let low = 0, high = x.length - 1;
  if (step <= x[0]) return y[0];
  if (step >= x[high]) return y[high];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    x[middle] <= step ? low = middle : high = middle;
  }
  return y[low] + (y[high] - y[low]) * (step - x[low]) / (x[high] - x[low]);
}

/** Few points, as of validation, show no noise. */
const isSmooth = series => smoothing > 0 && series.x.length > 100;
/** The points of a metric as they are drawn. */
function points(run, metric, isLog) {
  const series = run.series[metric];
  if (!series || (axis === 'time' && !run.series.seconds)) return [];
  const kept = isSmooth(series) ? smoothing : 0;
  let mean = 0, weight = 0;
  return series.x.map((step, i) => {
    mean = kept * mean + (1 - kept) * series.y[i];
    weight = kept * weight + 1 - kept;
    const lo = series.lo ? series.lo[i] : series.y[i], hi = series.hi ? series.hi[i] : series.y[i];
    return {step, x: axis === 'time' ? secondsAt(run, step) : step, y: mean / weight,
      raw: series.y[i], lo, hi};
  }).filter(point => !isLog || (point.lo > 0 && point.y > 0));
}

/** Round numbers from low to high, about as many as asked. */
function ticks(low, high, about, isLog) {
  if (isLog && high / low >= 8) {
    const all = [], decades = Math.log10(high / low);
    const every = Math.ceil(decades / about), within = decades < about / 3 ? [1, 2, 5] : [1];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += every) {
      for (const digit of within) all.push(+(digit + 'e' + power));
    }
    return all.filter(value => value >= low && value <= high);
  }
  const rough = (high - low) / about, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find(digit => digit * power >= rough * 0.999) || 10);
  const all = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; ++i) {
    all.push(+(i * step).toPrecision(12));
  }
  return all;
}
/** Ticks of a time axis: seconds, minutes or hours in round numbers. */
function timeTicks(high, about) {
  const steps = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 18000, 43200, 86400];
  const step = steps.find(each => high / each <= about) || 86400 * Math.ceil(high / 86400 / about);
  if (high < 2) return ticks(0, high, about);
  return Array.from({length: Math.floor(high / step) + 1}, (_, i) => i * step);
}
function timeTick(seconds, high) {
  if (high < 120) return +seconds.toPrecision(3) + ' s';
  if (high < 7200) return +(seconds / 60).toPrecision(3) + ' min';
  const [unit, name] = high < 86400 * 3 ? [3600, ' h'] : [86400, ' d'];
  return +(seconds / unit).toPrecision(3) + name;
}

/** Moves labels apart that would overlap; keeps their order. */
function spread(labels, least, most) {
  labels.sort((a, b) => a.y - b.y);
  labels.forEach((label, i) => {
    label.at = Math.max(label.y, i ? labels[i - 1].at + 14 : least);
  });
  for (let i = labels.length - 1, bound = most; i >= 0; bound = labels[i--].at - 14) {
    labels[i].at = Math.min(labels[i].at, bound);
  }
}

/** The start of a long name, or the end of a long path. */
function short(text, most) {
  if (text.length <= most) return text;
  return text.includes('/') ? '…' + text.slice(1 - most) : text.slice(0, most - 1) + '…';
}

/** What a chart shows and where: its lines, the range of its axes and the scales to pixels. */
function frameOf(width, [, metric, , unit = '', base], isLog) {
  const lines = seen().map(run =>
    ({run, series: run.series[metric], all: points(run, metric, isLog)})).filter(l => l.all.length);
  if (!lines.length || !width) return undefined;
  const isRaw = !lines.some(line => isSmooth(line.series));
  const flat = lines.flatMap(line => line.all);
  const over = (pick, key) => flat.reduce((best, point) => pick(best, point[key]), flat[0][key]);
  let low = Math.min(over(Math.min, 'y'), over(Math.min, isRaw ? 'lo' : 'raw'));
  let high = over(Math.max, isRaw ? 'hi' : 'raw');
  if (base !== undefined && !isLog) low = Math.min(low, base);
  if (high - low <= 1e-7 * Math.abs(high)) {
    const half = (Math.abs(low) || 1) * 0.1;
    [low, high] = isLog ? [low / 2, high * 2] : [low === base ? low : low - half, high + half];
  } else if (isLog) {
    [low, high] = [low / (high / low) ** 0.03, high * (high / low) ** 0.03];
  } else {
    const edge = (high - low) * 0.03;
    [low, high] = [low === base ? low : low - edge, high + edge];
  }
  const timed = seen().filter(run => axis === 'step' || run.series.seconds);
  const left = axis === 'time' ? 0 : Math.min(...timed.map(run => run.first));
  const right = Math.max(left + (axis === 'time' ? 1e-6 : 1),
    ...timed.map(run => axis === 'time' ? run.series.seconds.max : run.last));
  const marks = ticks(low, high, 5, isLog).map(value => [value, amount(value, unit)]);
  const isNamed = lines.length > 1 && lines.length <= 5 && width > 330;
  const longest = Math.max(...lines.map(line => short(line.run.name, 14).length));
  const l = 8 + 7 * Math.max(...marks.map(mark => mark[1].length), 2);
  const r = width - (isNamed ? 14 + 7 * longest : 10), t = 10, b = kHeight - 24;
  const scale = isLog ? Math.log : value => value;
  const tall = (b - t) / (scale(high) - scale(low));
  return {lines, isRaw, isNamed, left, right, marks, l, r, t, b, width,
    X: x => l + (x - left) / (right - left) * (r - l),
    Y: y => b - (scale(y) - scale(low)) * tall};
}

function drawAxes(plot, {marks, left, right, l, r, t, b, width, X, Y}) {
  for (const [value, text] of marks) {
    const y = Y(value);
    plot.append(svg('line', {x1: l, x2: r, y1: y, y2: y, stroke: 'var(--line)'}),
      svg('text', {x: l - 6, y: y + 4, 'text-anchor': 'end'}, text));
  }
  const about = Math.max(2, Math.floor((r - l) / 65));
  for (const value of axis === 'time' ? timeTicks(right, about) : ticks(left, right, about)) {
    if (axis === 'step' && value % 1) continue;
    const step = value < 1e4 ? whole(value) : plain(value, 4);
    const text = axis === 'time' ? timeTick(value, right) : step;
    const x = X(value), middle = Math.min(x, width - 3.4 * text.length - 2);
    plot.append(svg('line', {x1: x, x2: x, y1: b, y2: b + 4, stroke: 'var(--quiet)'}),
      svg('text', {x: middle, y: kHeight - 6, 'text-anchor': 'middle'}, text));
  }
  plot.append(svg('line', {x1: l, x2: r, y1: b, y2: b, stroke: 'var(--quiet)'}));
}

function drawLine(plot, {run, series, all}, {isRaw, X, Y}) {
  const path = key => all.map(point => X(point.x).toFixed(1) + ',' + Y(point[key]).toFixed(1));
  const line = {fill: 'none', stroke: run.colour, 'stroke-width': 1.4, 'stroke-linejoin': 'round',
    'stroke-dasharray': run.dash || undefined};
  if (series.lo && isRaw) {
    const band = path('hi').concat(path('lo').reverse()).join(' ');
    plot.append(svg('polygon', {points: band, fill: run.colour, opacity: .18}));
  }
  if (!isRaw) plot.append(svg('polyline', {...line, points: path('raw').join(' '), opacity: .25}));
  plot.append(svg('polyline', {...line, points: path('y').join(' ')}));
  if (all.length > 30) return;
  for (const point of all) {
    plot.append(svg('circle', {cx: X(point.x), cy: Y(point.y), r: 2.5, fill: run.colour}));
  }
}

/** The names of runs at the ends of their lines. */
function drawNames(plot, {lines, t, b, r, Y}) {
  const labels = lines.map(({run, all}) => ({run, y: Y(all[all.length - 1].y) + 4}));
  spread(labels, t + 4, b + 4);
  for (const {run, at} of labels) {
    plot.append(svg('text', {x: r + 7, y: at, style: `fill:${run.colour}`}, short(run.name, 14)));
  }
}

/** Shows the values of all runs near a pixel of the chart, or nothing. */
function hover(card, {lines, t, b, width, X, Y}, [, , title, unit = ''], at) {
  card.cursor.replaceChildren();
  card.tip.hidden = at === undefined;
  if (card.tip.hidden) return;
  const distance = point => Math.abs(X(point.x) - at);
  const nearest = all => all.reduce((a, b) => distance(b) < distance(a) ? b : a);
  const near = lines.map(line => ({...line, point: nearest(line.all)}));
  const first = nearest(near.map(({point}) => point)), x = X(first.x);
  card.cursor.append(svg('line', {x1: x, x2: x, y1: t, y2: b, stroke: 'var(--quiet)'}));
  const rows = near.filter(({point}) => Math.abs(X(point.x) - x) < 12);
  card.tip.replaceChildren(
    html('div', {}, 'step ' + whole(first.step) + (axis === 'time' ? ', ' + time(first.x) : '')),
    ...rows.map(({run, series, point}) => {
      card.cursor.append(svg('circle', {cx: X(point.x), cy: Y(point.y), r: 3.5, fill: run.colour}));
      const range = series.lo && width > 420 ?
        ` (${amount(point.lo, unit)} to ${amount(point.hi, unit)})` : '';
      const name = runs.length > 1 ? run.name : title;
      return html('div', {}, html('span', {style: `color:${run.colour}`}, name),
        html('b', {}, amount(point.y, unit, 5) + range));
    }));
  card.tip.style.cssText = `top:${t + 36}px;` +
    (x < width / 2 ? `left:${x + 22}px` : `right:${width - x + 22}px`);
}

function draw(card, chart) {
  const [, metric, title, unit = ''] = chart, isLog = logarithmic.has(metric);
  const frame = frameOf(card.plot.clientWidth, chart, isLog);
  card.plot.replaceChildren();
  card.tip.hidden = true;
  card.hover = () => {};
  if (!frame) {
    card.plot.append(svg('text', {x: 8, y: 24}, isLog ? 'no positive values' : 'no values'));
    return;
  }
  drawAxes(card.plot, frame);
  for (const line of frame.lines) drawLine(card.plot, line, frame);
  if (frame.isNamed) drawNames(card.plot, frame);
  card.cursor = svg('g');
  card.plot.append(card.cursor);
  card.hover = at => hover(card, frame, chart, at);
  card.plot.setAttribute('aria-label', title + ': ' + frame.lines.map(({run, series}) =>
    `${run.name} ${amount(series.last, unit)} at the end`).join(', '));
}
