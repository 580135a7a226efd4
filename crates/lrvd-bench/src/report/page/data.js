// What the page says and draws, computed from the two embedded documents: spreads over seeds, noise, orders.

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const results = read("results");
const page = read("page");

/** The switches of the page. */
const state = { choice: page.reported, draws: page.draws ?? 0 };

/** A finite number or null: records write other numbers as words. */
const num = (x) => (typeof x === "number" && Number.isFinite(x) ? x : null);
const nums = (list) => list.map(num).filter((x) => x !== null);
const mean = (list) => {
  const values = nums(list);
  return values.length ? values.reduce((a, b) => a + b, 0) / values.length : null;
};
const unique = (list) => [...new Set(list)];
const grouped = (n) => Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
/** At most `digits` decimals, no zeros at the end. */
const short = (x, digits = 2) => String(Number(x.toFixed(digits)));
const list = (words) =>
  words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;

const methods = new Map(page.methods.map((method) => [method.name, method]));
const colour = (name) => `var(--c${methods.get(name)?.colour ?? 0})`;
const SYMBOLS = ["circle", "triangle", "diamond2", "square", "hexagon", "star"];
const symbol = (name) => SYMBOLS[methods.get(name)?.colour ?? 0];
const modules = new Map(page.modules.map((module) => [module.path, module]));
const taskKeys = page.tasks.map((task) => task.key);
const taskLabel = (key) => page.tasks.find((task) => task.key === key)?.label ?? key;
/** The name of a task's own metric, and the key of its cells. */
const standardOf = (task) => results.data[task]?.standard_metric ?? "accuracy";
const scoreOf = (task) => (standardOf(task) === "accuracy" ? "accuracy" : "standard");
/** Tasks with classes, over which accuracy and calibration can be averaged. */
const classTasks = taskKeys.filter((task) =>
  results.runs.some((run) =>
    Object.values(run.checkpoints.last?.metrics ?? {}).some((m) => m.accuracy !== null)));

/** How well uncertainty told other sets from a run's own, by set and number of draws. */
const oodOf = (run) => run.ood;
const isFinished = (run) => run.status === "finished";
const runsOf = (task, method) =>
  results.runs
    .filter((run) => run.task === task && run.method === method)
    .sort((a, b) => a.seed - b.seed);
/** Last checkpoints of the finished runs of a task and method. */
const lastOf = (task, method) =>
  runsOf(task, method).filter(isFinished).map((run) => run.checkpoints.last).filter(Boolean);
/** The draws of a method's full answer: the most it has, up to those of the tables; 0 without draws. */
const fullDraws = (records) =>
  Math.max(0, ...records.flatMap((record) => Object.keys(record.metrics).map(Number))
    .filter((k) => k <= (page.draws ?? 0)));

/** Mean, sample standard deviation, standard error and median of one value per seed. */
function spread(values) {
  const found = nums(values ?? []);
  if (!found.length) return null;
  const n = found.length;
  const average = mean(found);
  const std = n > 1 ? Math.sqrt(found.reduce((s, x) => s + (x - average) ** 2, 0) / (n - 1)) : null;
  const sorted = [...found].sort((a, b) => a - b);
  const median = (sorted[(n - 1) >> 1] + sorted[n >> 1]) / 2;
  return { values: found, n, mean: average, std, se: std === null ? null : std / Math.sqrt(n), median };
}

/** A metric at a number of draws, as cells are keyed. */
const at = (metric, draws) => (draws > 0 ? `${metric}_k${draws}` : metric);
const cell = (choice, metric, draws, method, task) =>
  spread(page.cells[choice]?.[describe(metric).drawn ? at(metric, draws) : metric]?.[method]?.[task]);

/** The spread of one task, or the mean over several tasks, all of which the method must have. */
function over(choice, metric, draws, method, tasks) {
  const cells = tasks.map((task) => cell(choice, metric, draws, method, task));
  if (!cells.length || cells.some((c) => !c)) return null;
  if (cells.length === 1) return cells[0];
  const se = cells.every((c) => c.se !== null)
    ? Math.hypot(...cells.map((c) => c.se)) / cells.length : null;
  return { values: [], n: Math.min(...cells.map((c) => c.n)), mean: mean(cells.map((c) => c.mean)), std: null, se };
}
/** The draws of a method's answer in a table of `draws`: those, or 0 where it has one answer only. */
const answerDraws = (choice, draws, method, tasks) =>
  tasks.every((task) => cell(choice, "accuracy", draws, method, task) ||
    cell(choice, "standard", draws, method, task)) ? draws : 0;

/** How a metric prints: value, deviation without a zero before the point. */
const describe = (metric) => page.metrics[metric] ?? { title: metric, digits: 3, count: false, better: 0, drawn: false };
function text(metric, x) {
  const { digits, count } = describe(metric);
  if (num(x) === null) return "–";
  if (count) return grouped(x);
  return x.toFixed(digits + (metric === "time_min" && x < 10 ? 1 : 0));
}
const stdText = (metric, std) =>
  ` ±${std.toFixed(Math.max(2, describe(metric).digits)).replace(/^0\./, ".")}`;

/**
 * What can be said of rivals: `best` where one is better than all others beyond noise, `par` for those that cannot be
 * told from the best. Noise is twice the combined standard error of two means over seeds; one seed says nothing.
 */
function verdicts(spreads, better, digits) {
  const known = spreads.filter((s) => s && s.se !== null);
  if (!better || known.length < 2) return spreads.map(() => "");
  const best = known.reduce((a, b) => (better * (b.mean - a.mean) > 0 ? b : a));
  const noise = (s) => Math.max(2 * Math.hypot(s.se, best.se), 0.5 * 10 ** -digits);
  const near = known.filter((s) => better * (best.mean - s.mean) <= noise(s));
  if (near.length === 1) return spreads.map((s) => (s === best ? "best" : ""));
  if (near.length === known.length) return spreads.map(() => "");
  return spreads.map((s) => (near.includes(s) ? "par" : ""));
}

/** Methods that a crowded figure brings out: the reference, the subject and the best of each family, the smallest. */
function highlights(value) {
  const best = page.families.map((family) =>
    page.methods.filter((m) => m.family === family && num(value(m.name)) !== null)
      .sort((a, b) => value(a.name) - value(b.name))[0]?.name);
  return page.methods.filter((m) => m.always || best.includes(m.name)).map((m) => m.name);
}

/** The rank of a module at a step, averaged over the runs that have an entry by then; ranks hold until they change. */
function rankAt(runs, path, step) {
  return mean(runs.map((run) =>
    run.rank_events.findLast((event) => event.step <= step)?.ranks[path] ?? null));
}

/** Bins of several seeds added up: counts add, accuracy and confidence average by count. */
function pool(seeds) {
  const pooled = new Map();
  for (const bin of seeds.flatMap((seed) => seed.bins).filter((b) => b.count > 0)) {
    const key = `${bin.low} ${bin.high}`;
    const sum = pooled.get(key) ?? { low: bin.low, high: bin.high, count: 0, accuracy: 0, confidence: 0 };
    const n = sum.count + bin.count;
    for (const name of ["accuracy", "confidence"]) {
      sum[name] = (sum[name] * sum.count + bin[name] * bin.count) / n;
    }
    sum.count = n;
    pooled.set(key, sum);
  }
  return [...pooled.values()].sort((a, b) => a.low - b.low);
}

/** A curve of points `[x, y]` read at `x` by straight lines; flat before its first point and after its last. */
function readCurve(points, x) {
  const i = points.findIndex((p) => p[0] >= x);
  if (i <= 0) return points.at(i)?.[1] ?? null;
  const [[x0, y0], [x1, y1]] = [points[i - 1], points[i]];
  return x1 > x0 ? y0 + ((y1 - y0) * (x - x0)) / (x1 - x0) : y1;
}

/** The two neighbours with the largest difference; none for fewer than two values. */
function largestGap(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const gaps = sorted.slice(1).map((high, i) => [sorted[i], high]).filter(([a, b]) => b > a);
  return gaps.reduce((best, gap) => (best && best[1] - best[0] >= gap[1] - gap[0] ? best : gap), null);
}
