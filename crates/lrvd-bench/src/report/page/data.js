// Numbers of tables, marks and orders, read from the two embedded documents.

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const results = read("results");
const page = read("page");

/** A finite number or null: records write other numbers as words. */
const num = (x) => (typeof x === "number" && Number.isFinite(x) ? x : null);
const nums = (list) => list.map(num).filter((x) => x !== null);
const mean = (list) => {
  const values = nums(list);
  return values.length ? values.reduce((a, b) => a + b, 0) / values.length : null;
};
const unique = (list) => [...new Set(list)];
const grouped = (n) => Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
/** `digits` decimals, an exact half to the even side, as the terminal prints. */
function fixed(x, digits) {
  const doubled = 2 * x * 10 ** digits;
  const half = Number.isInteger(x * 2 ** (digits + 1)) && Math.abs(doubled % 2) === 1;
  return half ? (2 * Math.round(doubled / 4) / 10 ** digits).toFixed(digits) : x.toFixed(digits);
}
/** `digits` decimals; a value that rounds to zero has no sign. */
const decimals = (x, digits) => fixed(x, digits).replace(/^-(?=[0.]*$)/, "");
/** A value by the format of its metric, `Format` in `metric.rs`; a dash for a number that is not finite. */
function print({ digits, style }, x) {
  if (num(x) === null) return "–";
  if (style === "grouped" && x >= 0) return grouped(x);
  if (style === "millions") return `${decimals(x / 1e6, digits)} M`;
  return decimals(x, digits + (style === "finer" && x < 10 ? 1 : 0));
}
/** A standard deviation, without a zero before the point; empty for counts. */
const deviation = ({ std_digits, style }, std) =>
  num(std) === null || style === "grouped" || style === "millions" ? "" : ` ±${fixed(std, std_digits).replace(/^0\./, ".")}`;
/** A difference with its sign. */
function signed({ digits, style }, x) {
  const text = fixed(Math.abs(style === "millions" ? x / 1e6 : x), digits) + (style === "millions" ? " M" : "");
  return (x < 0 || Object.is(x, -0) ? "−" : "+") + text;
}
/** At most `digits` decimals, no zeros at the end. */
const short = (x, digits = 2) => String(Number(fixed(x, digits)));

const methods = new Map(page.methods.map((method) => [method.name, method]));
const colour = (name) => `var(--c${methods.get(name)?.colour ?? 0})`;
const SYMBOLS = ["circle", "triangle", "diamond2", "square", "hexagon", "star"];
const symbol = (name) => SYMBOLS[methods.get(name)?.colour ?? 0];
const modules = new Map(page.modules.map((module) => [module.path, module]));
const taskKeys = page.tasks.map((task) => task.key);
const taskLabel = (key) => page.tasks.find((task) => task.key === key)?.label ?? key;
const metricOf = (key) => page.tasks.find((task) => task.key === key)?.metric ?? "accuracy";
const scoreOf = (task) => ((results.data[task]?.standard_metric ?? "accuracy") === "accuracy" ? "accuracy" : "standard");

const isFinished = (run) => run.status === "finished";
const runsOf = (task, method) =>
  results.runs
    .filter((run) => run.task === task && run.method === method)
    .sort((a, b) => a.seed - b.seed);
/** The last or the best checkpoints of the finished runs of a task and method. */
const checkpointsOf = (task, method, choice) =>
  runsOf(task, method).filter(isFinished).map((run) => run.checkpoints[choice]).filter(Boolean);
const lastOf = (task, method) => checkpointsOf(task, method, "last");
/** The draws of a method's full answer: the most it has, up to those of the tables; 0 without draws. */
const fullDraws = (records) =>
  Math.max(0, ...records.flatMap((record) => Object.keys(record.metrics).map(Number))
    .filter((k) => k <= (page.draws ?? 0)));

/** A metric at a number of draws, as cells are keyed. */
const at = (metric, draws) => (draws > 0 && describe(metric).drawn ? `${metric}_k${draws}` : metric);
/** A number over seeds with mean, deviation and standard error, and its texts: `text`, `std_text`, `behind`, `seeds`. */
function cell(choice, metric, draws, method, task) {
  const found = page.cells[choice]?.[at(metric, draws)]?.[method]?.[task];
  if (!found) return undefined;
  const { mean: value, std, seeds, behind } = found;
  const { format } = describe(metric);
  // Ranks that all seeds share have no spread to show.
  const varies = metric !== "rank" || std > 0;
  return { mean: value, std, se: std === null ? null : std / Math.sqrt(seeds.length),
    text: print(format, value), std_text: varies ? deviation(format, std) : "",
    behind: behind === null ? null : metric === "rank" ? ` of ${behind}` : ` (${print(format, behind)})`,
    seeds: seeds.length > 1 ? seeds.map((x) => print(format, x)).join(", ") : null };
}
/** A method's answer at a number of draws, `only` where it has a single one and draws nothing. */
function answer(choice, metric, draws, method, task) {
  const drawn = cell(choice, metric, draws, method, task);
  const s = drawn ?? cell(choice, metric, 0, method, task);
  return s && { ...s, only: !drawn };
}
/** `best` if significantly better than every other method, `not-separable` for the best mean and those not shown to differ from it. */
const markOf = (choice, metric, draws, method, task) => page.marks[choice]?.[at(metric, draws)]?.[task]?.[method] ?? "";

const describe = (metric) => page.metrics[metric] ?? { title: metric, better: 0, drawn: false };

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
