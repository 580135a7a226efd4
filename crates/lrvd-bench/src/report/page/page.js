// The page: its sections in reading order with tables and text. Every heading is there once; figures and tables
// name their task.

const how = (...words) => h("p", { class: "how" }, ...words);
const filled = (content) => content.flat(Infinity).filter(Boolean);
const fold = (title, ...content) =>
  filled(content).length ? h("details", {}, h("summary", {}, title), ...filled(content)) : null;
const grid = (size, figures) =>
  filled([figures]).length ? h("div", { class: `grid ${size}` }, filled([figures])) : null;
/** A heading over what it stands for; nothing over nothing. `words` explain it. */
const part = (title, words, ...content) =>
  filled(content).length ? [h("h3", {}, title), words ? how(words) : null, ...filled(content)] : [];
const section = (id, title, ...content) =>
  filled(content).length
    ? h("section", { id, "aria-labelledby": `${id}-title`, tabindex: -1 }, h("h2", { id: `${id}-title` }, title),
      ...filled(content))
    : null;
const methodName = (name) => [swatch(colour(name), symbol(name)), name];
const byTask = (draw) => page.tasks.map((task) => draw(task.key, task.label));
const withDraws = page.draws ? `${page.draws} draws` : "";

/* ---- Tables ---- */

/** A table whose rows stand in bodies under headings of their own. Rows are `[name, about, cells]`. */
function table({ caption, head, bodies }) {
  const rows = bodies.filter((body) => body.rows.length);
  if (!rows.length) return null;
  const heading = (body) =>
    body.heading ? h("tr", { class: "family" }, h("th", { scope: "rowgroup", colspan: head.length + 1 }, h("span", {}, body.heading))) : null;
  const way = (better) =>
    better ? h("span", { class: "way", "aria-label": better > 0 ? "higher is better" : "lower is better" },
      better > 0 ? " ↑" : " ↓") : null;
  return scroller(h("div", { class: "scroll tips", tabindex: 0, role: "group", "aria-label": caption, "aria-describedby": "keys" },
    h("table", {}, h("caption", {}, h("span", {}, caption)),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Method"), head.map(({ text: words, title, better }) =>
        h("th", { scope: "col", class: "n", "data-tip": title }, words, way(better))))),
      rows.map((body) =>
        h("tbody", {}, heading(body), body.rows.map(([name, about, cells]) =>
          h("tr", {}, h("th", { scope: "row", "data-tip": about }, name), cells)))))));
}
/** One row per method that has one, under the headings of the families where colours tell families. */
function familyBodies(row) {
  const rowsOf = (members, named) => members.map((m) => [named(m.name), m.about, row(m.name)]).filter((r) => r[2]);
  if (!page.uncertainty) return [{ rows: rowsOf(page.methods, methodName) }];
  return page.families.map((family) => {
    const members = page.methods.filter((m) => m.family === family);
    return { heading: [methodName(members[0].name)[0], family], rows: rowsOf(members, (name) => name) };
  });
}
/** The cell of a number over seeds. */
function valueCell(s, mark) {
  if (!s) return h("td", { class: "n absent" }, "–");
  const tips = [
    s.seeds && `seeds: ${s.seeds}`,
    s.only && "one answer, no draws",
    mark === "not-separable" ? "the best mean, or not shown to differ from it" : mark === "best" ? "significantly better than every other method" : "",
  ].filter(Boolean);
  return h("td", { class: `n ${mark}${s.only ? " only" : ""}`, "data-tip": tips.join("; ") || null },
    h("b", {}, s.text), [s.std_text, s.behind].filter(Boolean).map((words) => h("i", {}, words)));
}
/**
 * Metrics of all methods, `[metric, heading, draws]`: a table per task with a body per family, or for a few methods one
 * table with a body per task. What is empty, and what says the same as a column before, is left out.
 */
function metricTables(caption, choice, metrics, tasks = taskKeys) {
  const columns = metrics.map(([metric, heading, draws = 0]) => ({
    metric, draws, text: heading, title: describe(metric).title, better: describe(metric).better,
    of: (task, name) => answer(choice, metric, draws, name, task) }));
  const told = (own) => {
    const key = (c) => own.map((task) => page.methods.map((m) => c.of(task, m.name)?.mean ?? "").join()).join();
    return columns.filter((c, i) => /[1-9]/.test(key(c)) && !columns.slice(0, i).some((before) => key(before) === key(c)));
  };
  const cells = (task, shown) => (name) =>
    shown.some((c) => c.of(task, name)) && shown.map((c) => {
      const s = c.of(task, name);
      return valueCell(s && { ...s, only: s.only && describe(c.metric).drawn && c.draws > 0 },
        markOf(choice, c.metric, c.draws, name, task));
    });
  const head = (shown, task) => shown.map((c) =>
    c.metric === "standard" && task ? { ...c, text: metricOf(task) } : c);
  if (page.uncertainty) {
    return tasks.map((task) => {
      const shown = told([task]);
      return table({ caption: `${taskLabel(task)}. ${caption}`, head: head(shown, task), bodies: familyBodies(cells(task, shown)) });
    });
  }
  const shown = told(tasks);
  return table({ caption, head: head(shown, tasks.length === 1 ? tasks[0] : null), bodies: tasks.map((task) => ({
    heading: shown.some((c) => c.metric === "standard") && scoreOf(task) === "standard" && tasks.length > 1 ? `${taskLabel(task)}, own metric: ${metricOf(task)}` : taskLabel(task),
    rows: familyBodies(cells(task, shown))[0].rows })) });
}

/* ---- Results ---- */

const QUALITY = [["accuracy", "Accuracy"], ["standard", "Own metric"], ...(page.uncertainty ? [["macro_f1", "Macro F1"]] : []), ["ece", "ECE"],
  ["nll", "NLL"], ...(page.uncertainty ? [["brier", "Brier"], ["aurc", "Risk area"]] : []), ["rank", "Rank"]];
function qualityTables(choice, draws) {
  const answers = draws ? `${draws} posterior draws, in italics where a method draws nothing` : page.draws ? "posterior mean" : "";
  return metricTables([`Scores at the ${choice} checkpoint`, answers].filter(Boolean).join(", "), choice,
    QUALITY.map(([metric, heading]) => [metric, heading, draws]));
}
const MARKS = "Bold: significantly better than every other method with a number. Shaded: that one, or the best mean and all that are not shown to differ from it.";
const procedures = () => fold("How these were tested", page.procedures.map(({ title, parts }) =>
  [h("h4", {}, title), parts.map(({ formula, words }) => (formula ? h("pre", {}, formula) : how(words)))]));
function resultsSection() {
  const main = page.uncertainty ? page.draws ?? 0 : 0;
  const [first, other] = page.reported === "best" ? ["best", "last"] : ["last", "best"];
  return section("results", "Results",
    how(page.findings.rule, page.findings.rule.includes("nothing is marked") ? "" : ` ${MARKS}`,
      " Behind an ECE: the mean ECE of a perfectly calibrated model with the same confidences."),
    procedures(), qualityTables(first, main), page.findings.budgets.map((words) => how(words)),
    page.draws ? fold(main ? "The same at the posterior mean" : `The same with ${withDraws}`,
      qualityTables(first, main ? 0 : page.draws)) : null,
    fold(`The same at the ${other} checkpoint${other === "best" ? `, chosen on the data it is reported on: optimistic${page.candidates ? `. ${page.candidates}` : ""}` : ""}`,
      qualityTables(other, main)),
    page.uncertainty
      ? part("Calibration against accuracy", "The better corner is at the lower right. Bars: one standard error over seeds." +
        (page.draws ? ` A line leads from the posterior mean (hollow) to the answer of ${withDraws} (filled).` : ""),
        byTask(tradeoff).some(Boolean) ? [legend(), grid("two", byTask(tradeoff))] : null)
      : part("Score against rank", "Dots: seeds; marks: their mean, with bars of one standard deviation.",
        byTask(scatter).some(Boolean) ? [legend(), grid("three", byTask(scatter))] : null));
}
const legend = () =>
  h("p", { class: "legend" }, (page.uncertainty
    ? page.families.map((family) => [page.methods.find((m) => m.family === family).name, family])
    : page.methods.map((m) => [m.name, m.name])).map(([name, words]) =>
    h("span", { class: "key" }, swatch(colour(name), symbol(name)), words)));
/** Calibration error over accuracy: from the posterior mean (hollow) to the full answer (filled). */
function tradeoff(task, label) {
  const at = (name, k) => {
    const [x, y] = ["accuracy", "ece"].map((metric) => answer("last", metric, k, name, task));
    return x && y && { method: name, x: x.mean, y: y.mean, sx: x.se, sy: y.se, drawn: k > 0 && !x.only,
      words: `accuracy ${x.text}, ECE ${y.text}` };
  };
  const full = page.methods.map((m) => at(m.name, page.draws ?? 0)).filter(Boolean);
  if (!full.length) return null;
  const hollow = full.filter((d) => d.drawn).map((d) => at(d.method, 0)).filter(Boolean);
  const trails = hollow.map((d) => ({ ...d, to: full.find((f) => f.method === d.method) }));
  const title = (d) => `${d.method}${d.drawn ? `, ${withDraws}` : ""}: ${d.words}`;
  const stroke = (d) => colour(d.method);
  const range = (key, side) => {
    const [low, high] = d3.extent([...full, ...hollow].flatMap((d) => [d[key] - (d[side] ?? 0), d[key] + (d[side] ?? 0)]));
    const margin = Math.max(0.07 * (high - low), 0.02 - (high - low) / 2, 0);
    return [low - margin, high + margin];
  };
  return figure({ title: label, label: `${label}: calibration error against accuracy`, height: 400, least: 480, plots: () => ({
    height: 400, marginLeft: 60, marginBottom: 42, grid: true,
    x: { label: "accuracy", domain: range("x", "sx"), ...CENTRED }, y: { label: "ECE", domain: range("y", "sy"), ...CENTRED },
    marks: [
      Plot.ruleX(full.filter((d) => d.sy), { x: "x", y1: (d) => d.y - d.sy, y2: (d) => d.y + d.sy, stroke, strokeOpacity: 0.35 }),
      Plot.ruleY(full.filter((d) => d.sx), { y: "y", x1: (d) => d.x - d.sx, x2: (d) => d.x + d.sx, stroke, strokeOpacity: 0.35 }),
      Plot.link(trails, { x1: "x", y1: "y", x2: (d) => d.to.x, y2: (d) => d.to.y, stroke, strokeOpacity: 0.6 }),
      Plot.dot(hollow, { x: "x", y: "y", r: 3.4, stroke, fill: "var(--card)", title }),
      Plot.dot(full, { x: "x", y: "y", r: 5.5, symbol: (d) => symbol(d.method), fill: stroke, stroke: "var(--paper)", title }),
      ...markNames(full, "x", "y"),
    ],
  }) });
}
/** The score over the average rank of one task: a light dot per seed, a mark with bars for the mean. */
function scatter(task, label) {
  const found = page.methods.map((m) => ({ method: m.name, rank: cell(page.reported, "rank", 0, m.name, task),
    score: cell(page.reported, scoreOf(task), 0, m.name, task) })).filter((d) => d.rank && d.score);
  if (!found.length) return null;
  const own = scoreOf(task) === "standard" ? (m) => m.standard[results.data[task].standard_metric] : (m) => m.accuracy;
  const dots = found.flatMap(({ method }) => checkpointsOf(task, method, page.reported)
    .map((r) => ({ method, x: num(r.average_rank), y: num(own(r.metrics[0])) }))).filter((d) => d.x !== null && d.y !== null);
  const bars = { stroke: (d) => colour(d.method), strokeWidth: 1.6, strokeOpacity: 0.75 };
  const most = Math.max(...found.map((d) => d.rank.mean), ...dots.map((d) => d.x), ...Object.values(page.full_ranks[task] ?? {}));
  return figure({ title: label, label: `${label}: ${metricOf(task)} against average rank`, height: 235, least: 280, plots: () => ({
    height: 235, marginLeft: 60, marginBottom: 42,
    x: { label: "average rank per module", domain: [-0.03 * most, 1.03 * most], ...CENTRED },
    y: { label: metricOf(task), nice: true, ticks: 4, ...CENTRED },
    marks: [
      gridY(),
      Plot.dot(dots, { x: "x", y: "y", r: 3, fill: (d) => colour(d.method), fillOpacity: 0.5 }),
      Plot.ruleY(found.filter((d) => d.rank.std), { y: (d) => d.score.mean, x1: (d) => Math.max(0, d.rank.mean - d.rank.std),
        x2: (d) => Math.min(most, d.rank.mean + d.rank.std), ...bars }),
      Plot.ruleX(found.filter((d) => d.score.std), { x: (d) => d.rank.mean, y1: (d) => d.score.mean - d.score.std,
        y2: (d) => d.score.mean + d.score.std, ...bars }),
      Plot.dot(found, { x: (d) => d.rank.mean, y: (d) => d.score.mean, r: 5.5, symbol: (d) => symbol(d.method),
        fill: (d) => colour(d.method), stroke: "var(--paper)",
        title: (d) => `${d.method}: ${d.score.text}${d.score.std_text ?? ""} at rank ${short(d.rank.mean)}` }),
    ],
  }) });
}
function publishedSection() {
  if (!page.comparison) return null;
  const { source, choice, rows, caveats } = page.comparison;
  const tables = unique(rows.map((row) => row.metric)).map((metric) => {
    const own = rows.filter((row) => row.metric === metric);
    const tasks = unique(own.map((row) => row.task)).sort((a, b) => a.toLowerCase().localeCompare(b.toLowerCase(), "en"));
    const line = (row) => {
      if (!row) return h("td", { class: "n absent" }, "–");
      const { format, measured, published, difference, standard_error: error } = row;
      const value = (s) => print(format, s.mean) + deviation(format, s.std);
      const apart = difference === null ? "" : signed(format, difference) + (error === null ? "" : `, s.e. ${print(format, error)}`);
      const tip = [row.caveat, row.method_caveat].filter(Boolean).join("; ") || null;
      return h("td", { class: "n", "data-tip": tip }, h("b", {}, measured ? value(measured) : "–"),
        [value(published), apart].filter(Boolean).map((words) => h("span", { class: "below" }, words)));
    };
    return table({ caption: `${metric}: measured; published; their difference`, head: tasks.map((task) => ({ text: task })),
      bodies: [{ rows: unique(own.map((row) => `${row.method}\n${row.draws}`)).map((key) => {
        const [method, draws] = key.split("\n");
        const name = methods.has(method) ? methodName(method) : h("span", { class: "absent" }, method);
        return [[name, draws > 0 ? h("i", {}, ` ${draws} draws`) : null], null,
          tasks.map((task) => line(own.find((r) => r.task === task && `${r.method}\n${r.draws}` === key)))];
      }) }] });
  });
  return section("published", "Published and measured",
    how(`In each cell: measured at the ${choice} checkpoint; published in `, h("code", {}, source),
      "; measured minus published, and the standard error of that difference. " +
      "Methods that did not run here keep their published numbers."),
    tables, h("ul", { class: "caveats" }, caveats.map((caveat) => h("li", {}, caveat))));
}

/* ---- Ranks ---- */

function ranksSection() {
  const groups = page.tasks.flatMap(({ key, label }) => page.methods.map((m) => {
    const runs = runsOf(key, m.name);
    return { task: key, label, method: m.name, runs, last: lastOf(key, m.name), get title() { return [methodName(m.name), ` on ${label}`]; },
      words: `${m.name} on ${label}`, moved: runs.some((run) => run.rank_events.length > 1) };
  })).filter((g) => g.runs.length);
  const own = groups.filter((g) => g.moved || g.last.some((r) => r.statistics));
  const most = Math.max(0, ...own.flatMap((g) => g.runs.flatMap((run) =>
    [run.rank_budget.initial_rank, ...Object.values(run.checkpoints.last?.ranks ?? {})])));
  const settled = own.filter((g) => g.last.length &&
    (g.moved || g.last.some((r) => unique(Object.values(r.ranks)).length > 1)));
  const patterns = settled.map((g) => figure({ title: g.title,
    note: `${seedsText(g.last.length)}, ${short(mean(g.last.map((r) => r.average_rank)))} on average`,
    label: `${g.words}: final rank of every module`, ...rankGrid(g.last, most) }));
  const by = (field, name) => unique(page.modules.map((m) => m[field])).map((value) => ({ name: name(value),
    paths: page.modules.filter((m) => m[field] === value).map((m) => m.path) }));
  const present = (runs, rows) => rows.filter((row) => row.paths.some((path) =>
    runs.some((run) => run.rank_events.some((e) => path in e.ranks))));
  const maps = (rows) => grid("two", own.filter((g) => g.moved).map((g) => figure({ title: g.title,
    label: `${g.words}: rank over steps`, ...heatMap(g.runs, present(g.runs, rows), most, lastStep(g.task)) })));
  const choices = groups.flatMap((g) => g.runs.filter((run) => run.choice).map(({ seed, choice }) =>
    figure({ title: g.title, note: `seed ${seed}, rank ${choice.points[choice.chosen].total_rank}`,
      label: `${g.words}, seed ${seed}: held-out loss over rank`, ...rankSearch(choice, g.method) })));
  const relevance = own.map((g) => {
    const run = g.runs.find((r) => r.checkpoints.last?.statistics);
    const drawn = run && statisticTrellis(run.checkpoints.last.statistics, g.method);
    const { name, threshold } = run?.checkpoints.last.statistics ?? {};
    return drawn && figure({ title: g.title, label: `${g.words}, seed ${run.seed}: ${name} of every component`,
      note: `${name}, seed ${run.seed}, ${threshold === null ? "no threshold" : `threshold ${threshold}`}`,
      ...drawn });
  });
  return section("ranks", "Ranks",
    page.uncertainty ? page.findings.ranks.map((words) => h("p", {}, words)) : null,
    part("Final ranks", "At the last checkpoint, mean over seeds: layers down, kinds of module across. Hatched: rank 0, the adapter is gone.",
      patterns.length ? [rankKey(most), grid("two", patterns)] : null),
    part("Ranks over steps", "Mean over modules and seeds.", maps(by("layer", (l) => (l === null ? "other" : `layer ${l}`))),
      fold("By kind of module", maps(by("kind", (kind) => kind))),
      fold("By module", maps(page.modules.map((m) => ({ name: m.label, paths: [m.path] }))))),
    part("Held-out loss by number of directions",
      "Every dot is the trained model with as many of its singular directions. Sizes are tested from the largest down to the first " +
      "that fails; the bar ends at the bound of that test at 5 %, paired by row with the whole model. Dashed: the loss of the whole " +
      "model and the margin. Circled: the last size that passed. Hollow: that size after the refinement, on the same rows, on which " +
      "no step was trained.", grid("three", choices)),
    part("Relevance of every component",
      "Filled: present at the last checkpoint; hollow: its value when it was removed, of a method that prunes by it; dashed: the " +
      "threshold of such a method. Directions that held-out rows cut have no value. Band: the largest gap between neighbours.", fold("Component by component", relevance)),
    part("Energy captured",
      "Share of the mean update carried by its first components: in the learned order, by factor norms (a control that knows " +
      "no posterior), in random order, and the bound by singular values. Thin lines are modules.",
      grid("three", own.map(energy))));
}
/** Energy of the first components, averaged over modules and seeds. */
function energy(group) {
  const records = group.last.flatMap((r) => Object.values(r.energy)).filter((e) => e.learned.length > 1);
  if (!records.length) return null;
  const area = (key) => mean(group.last.map((r) => mean(Object.values(r.energy).map((e) => e.auc[key]))));
  const share = (curve) => curve.map((value, k) => [k / (curve.length - 1), num(value)]).filter((p) => p[1] !== null);
  const lines = [
    ["svd", "SVD bound", "svd", { stroke: "var(--ink)" }],
    ["magnitude", "by magnitude", "magnitude", { stroke: "var(--soft)", strokeDasharray: "7 4" }],
    ["random_mean", "random mean", "random", { stroke: "var(--soft)", strokeDasharray: "2 4" }],
    ["learned", "learned order", "learned", { stroke: colour(group.method), strokeWidth: 2.5 }],
  ].map(([key, name, auc, style]) => ({ name, style, area: area(auc),
    points: d3.range(21).map((i) => [i / 20, mean(records.map((e) => readCurve(share(e[key]), i / 20)))]) }))
    .sort((a, b) => b.area - a.area);
  const gap = area("normalised_gap");
  const thin = records.flatMap((e, i) => share(e.learned).map(([x, y]) => ({ i, x, y })));
  return figure({ title: group.title, note: gap === null ? null : `normalised gap ${gap.toFixed(3)}`,
    label: `${group.words}: energy captured by the first components`, height: 290, plots: () => ({
      height: 290, marginLeft: 56, marginRight: 12, marginBottom: 40,
      x: { label: "share of components, k / rank", ...CENTRED }, y: { label: "energy captured", domain: [0, 1], ...CENTRED },
      marks: [
        gridY(),
        Plot.line(thin, { x: "x", y: "y", z: "i", stroke: colour(group.method), strokeOpacity: 0.14, strokeWidth: 1 }),
        ...lines.flatMap((l, i) => [
          Plot.line(l.points, { x: "0", y: "1", strokeWidth: 1.6, ...l.style }),
          Plot.dot(l.points, { x: "0", y: "1", r: 4, fill: "transparent", stroke: "none",
            title: (p) => `${l.name}: ${p[1].toFixed(3)} at ${p[0]}; area ${l.area?.toFixed(3)}` }),
          Plot.line([[0.5, 0.42 - 0.09 * i], [0.57, 0.42 - 0.09 * i]], { strokeWidth: 1.6, ...l.style }),
          Plot.text([[0.59, 0.42 - 0.09 * i]], { text: [`${l.name}, ${l.area?.toFixed(3)}`], textAnchor: "start" }),
        ]),
      ],
    }) });
}

/* ---- Training ---- */

const lastStep = (task) => Math.max(...results.runs.filter((run) => run.task === task).map((run) => run.steps));
function trainingSection() {
  const charts = page.tasks.flatMap(({ key, label, metric }) => {
    const final = (name) => mean(runsOf(key, name).map((r) => r.history.at(-1)?.accuracy ?? null));
    const named = page.uncertainty ? highlights((name) => -(final(name) ?? NaN)) : page.methods.map((m) => m.name);
    const evaluated = (value) => page.methods.flatMap(({ name }) => runsOf(key, name).flatMap((run) =>
      run.history.map((p) => ({ method: name, seed: run.seed, step: p.step, value: num(value(p)) })))).filter((p) => p.value !== null);
    const curve = (title, y, points, { digits = 3, ...options } = {}) => {
      if (!points.length) return null;
      // The mean is drawn where every seed that has any value has one.
      const means = page.methods.flatMap(({ name: method }) => {
        const own = points.filter((p) => p.method === method);
        const n = unique(own.map((p) => p.seed)).length;
        return unique(own.map((p) => p.step)).map((step) => own.filter((p) => p.step === step)).filter((same) => same.length === n)
          .map((same) => ({ method, step: same[0].step, value: mean(same.map((p) => p.value)) }));
      });
      return figure({ title: `${label}: ${title}`, label: `${label}: ${title} over steps`, height: 250,
        plots: stepLines(page.uncertainty ? [] : points, means, { y, end: lastStep(key),
          named: named.filter((n) => means.some((d) => d.method === n)), label: (x) => x.toFixed(digits), ...options }) });
    };
    const chart = (title, y, value, options) => curve(title, y, evaluated(value), options);
    return [
      chart(`validation ${metric}`, metric, scoreOf(key) === "standard" ? (p) => p.standard : (p) => p.accuracy),
      curve("total rank", "sum of ranks", page.total_ranks.filter((p) => p.task === key), { stairs: true, zero: true, digits: 0 }),
      chart("validation NLL", "NLL (nats per example)", (p) => p.nll_val),
      evaluated((p) => p.nll_val).length
        ? chart("training NLL", "mean since the last evaluation (nats per example)", (p) => p.nll)
        : chart("training error", "squared error, mean since the last evaluation", (p) => p.nll),
      chart("KL of the posterior from its prior", "KL (nats)", (p) => p.kl, { zero: true, digits: 1 }),
    ];
  });
  const drawn = grid("two", charts);
  return section("training", "Training", drawn ? how(page.uncertainty
    ? "Means over seeds at the posterior mean. Named: LoRA, BayesLoRA and the most accurate of each family."
    : "Thin lines are seeds, bold lines their mean, at the posterior mean.") : null, drawn);
}

/* ---- Confidence ---- */

function confidenceSection() {
  const sets = Object.entries(page.sets).flatMap(([set, name]) => {
    const tasks = taskKeys.filter((task) => results.runs.some((run) => run.task === task && run.ood[set]));
    const k = page.draws ?? 0;
    return tasks.length ? [metricTables(`Questions of ${name}${withDraws ? `, ${withDraws}` : ""}`, "last", [[`auroc_entropy_${set}`, "AUROC entropy", k],
      [`auroc_information_${set}`, "AUROC information", k], [`ood_accuracy_${set}`, "Accuracy", k], [`ood_nll_${set}`, "NLL", k],
      [`ood_ece_${set}`, "ECE", k]], tasks)] : [];
  });
  const convention = results.runs.flatMap((r) => Object.values(r.checkpoints.last?.reliability ?? {}))[0]?.convention;
  return section("confidence", "Confidence",
    part("Calibration", ["Bars: accuracy; tick: mean confidence; hatched: the gap between them; below: examples per bin. Bins pooled " +
      "over seeds, ECE is the mean of the seeds' values (in brackets that of a perfectly calibrated model with the same confidences), binning ", h("code", {}, convention ?? ""), "."], byTask(diagrams)),
    part("What posterior draws buy", "Means over seeds, bars of one standard error. Where the draws of a smaller number are the first of a larger one, one pass " +
      "answers for all of them: only the largest has a time.", byTask(sweep)),
    part("Answering only where sure", "Examples are answered in the order of confidence, each method at its full answer, averaged over " +
      "seeds. Beside each name: the area under its curve (0 is perfect).", byTask(selection)),
    part("Out-of-distribution questions", "Each model answers questions it was not trained for. The area under the ROC curve says how " +
      "well its uncertainty tells them from its own validation questions: 1 is always, one half is chance. Mutual information needs " +
      "several draws. The other columns are those of the answers by the other set's own labels.", sets));
}
/** Reliability at the full answer; the other answers, and on crowded pages the other methods, are folded. */
function diagrams(task, label) {
  const eceOf = (name) => cell("last", "ece", fullDraws(lastOf(task, name)), name, task)?.mean ?? null;
  const front = page.uncertainty ? highlights(eceOf) : page.methods.map((m) => m.name);
  const drawn = page.methods.flatMap(({ name }) => {
    const last = lastOf(task, name);
    const full = fullDraws(last);
    return unique([full, 0]).map((k) => {
      const bins = pool(last.map((r) => r.reliability[k]).filter(Boolean));
      const ece = cell("last", "ece", k, name, task);
      if (!bins.length || !ece) return null;
      const note = k ? `${k} draws` : full ? "posterior mean" : "";
      return { front: k === full && front.includes(name), figure: figure({ title: [methodName(name), ` on ${label}`], note,
        label: `${name} on ${label}, ${note}: reliability diagram`, ...reliability(bins, `ECE ${ece.text}${ece.behind ?? ""}`, name) }) };
    });
  }).filter(Boolean);
  const those = (front) => grid("four", drawn.filter((d) => d.front === front).map((d) => d.figure));
  return [those(true), fold(`Other answers on ${label}`, those(false))];
}
const MEASURES = [["accuracy", "accuracy", "accuracy"], ["calibration", "ECE", "ece"], ["likelihood", "NLL (nats)", "nll"],
  ["latency", "milliseconds per example", "predict_s"]];
/** What one more posterior draw buys: metrics and time against the number of draws. */
function sweep(task, label) {
  const found = page.methods.map((m) => ({ method: m.name, records: lastOf(task, m.name) }))
    .filter((f) => f.records.some((r) => Object.keys(r.metrics).some((k) => k > 0)));
  const draws = unique(found.flatMap((f) => f.records.flatMap((r) => Object.keys(r.metrics).map(Number)))).sort((a, b) => a - b);
  // Two numbers of draws are two tables of results.
  if (draws.length < 3) return null;
  const room = Math.max(...found.map((f) => f.method.length));
  const height = Math.max(220, 14 * found.length + 56);
  const n = Object.values(found[0].records[0].metrics)[0].n;
  return grid("two", MEASURES.map(([title, axis, metric]) => {
    const [scale, print] = metric === "predict_s" ? [1000 / n, (s) => ((1000 * s.mean) / n).toFixed(2)] : [1, (s) => s.text];
    const lines = found.map((f) => draws.map((k) => ({ method: f.method, k, s: cell("last", metric, k, f.method, task) }))
      .filter((p) => num(p.s?.mean) !== null).map((p) => ({ ...p, value: scale * p.s.mean, se: scale * (p.s.se ?? 0) })))
      .filter((line) => line.length > 1);
    if (!lines.length) return null;
    return figure({ title: `${label}: ${title}`, label: `${label}: ${title} by number of posterior draws`, height, plots: (width) => ({
      height, marginLeft: 70, marginRight: Math.min(16 + 7.4 * room, width / 3), marginBottom: 40,
      x: { type: "point", domain: draws, label: "posterior draws (0: the mean)", ...CENTRED, padding: 0.1 },
      y: { label: axis, nice: true, ...CENTRED },
      marks: [
        gridY(),
        Plot.ruleX(lines.flat(), { x: "k", y1: (d) => d.value - d.se, y2: (d) => d.value + d.se, stroke: (d) => colour(d.method),
          strokeOpacity: 0.45 }),
        Plot.line(lines.flat(), { x: "k", y: "value", z: "method", stroke: (d) => colour(d.method), strokeWidth: 1.6 }),
        Plot.dot(lines.flat(), { x: "k", y: "value", r: 2.8, fill: (d) => colour(d.method),
          title: (d) => `${d.method}, ${d.k} draws: ${print(d.s)}` }),
        endNames(lines.map((line) => ({ ...line.at(-1), name: line[0].method })), "k", "value"),
      ],
    }) });
  }));
}
/** A threshold cut off where it is still told from 1, never above itself. */
function threshold(x) {
  const digits = Math.min(12, Math.max(4, x < 1 ? 2 + Math.ceil(-Math.log10(1 - x)) : 4));
  return (Math.floor(x * 10 ** digits) / 10 ** digits).toFixed(digits);
}
/** Answering only where sure: risk over coverage, and what a chosen risk costs. */
function selection(task, label) {
  const found = page.methods.map((m) => {
    const records = lastOf(task, m.name);
    const k = fullDraws(records);
    const own = records.map((r) => r.selective[k]).filter(Boolean);
    const points = d3.range(1, 51).map((i) => ({ method: m.name, x: i / 50, y: mean(own.map((s) => readCurve(s.curve, i / 50))) }))
      .filter((p) => p.y !== null);
    return { method: m.name, own, points, area: cell("last", "aurc", k, m.name, task) };
  }).filter((f) => num(f.area?.mean) !== null && f.points.length);
  if (!found.length) return null;
  const bold = page.uncertainty ? highlights((name) => found.find((f) => f.method === name)?.area.mean ?? null) : found.map((f) => f.method);
  const strong = (d) => bold.includes(d.method);
  // Below a tenth of the questions a single early mistake is a risk of one.
  const top = Math.max(0.01, ...found.flatMap((f) => f.points.filter((p) => p.x >= 0.1).map((p) => p.y)));
  const names = found.filter(strong).map((f) => ({ ...f.points.at(-1), name: `${f.method} ${f.area.text}` }));
  const room = Math.max(...names.map((d) => d.name.length));
  const chart = figure({ title: label, label: `${label}: risk against coverage`, height: 340, least: 330, plots: (width) => ({
    height: 340, marginLeft: 58, marginRight: Math.min(14 + 7.9 * room, width / 2.4), marginBottom: 40,
    x: { domain: [0, 1], ticks: 5, label: "coverage: share answered", ...CENTRED },
    y: { domain: [0, top], nice: true, label: "risk: share of wrong answers", ...CENTRED },
    marks: [
      gridY(),
      ...d3.sort(found, strong).map((f) => Plot.line(f.points, { x: "x", y: "y", clip: true, stroke: colour(f.method),
        strokeWidth: strong(f) ? 2.4 : 1, strokeOpacity: strong(f) ? 1 : 0.4 })),
      Plot.dot(found.flatMap((f) => f.points), { x: "x", y: "y", r: 3.5, fill: "transparent", stroke: "none", clip: true,
        title: (d) => `${d.method}: risk ${d.y.toFixed(3)} at coverage ${d.x}` }),
      endNames(names, "x", "y"),
    ],
  }) });
  const risks = unique(nums(found.flatMap((f) => f.own.flatMap((s) => s.targets.map((t) => t.risk))))).sort((a, b) => a - b);
  const row = (name) => found.find((f) => f.method === name) && risks.map((risk) => {
    const targets = found.find((f) => f.method === name).own.flatMap((s) => s.targets.filter((t) => t.risk === risk));
    const reached = nums(targets.map((t) => t.threshold));
    if (!reached.length) return h("td", { class: "n absent", "data-tip": "no threshold reaches this risk" }, "–");
    return h("td", { class: "n", "data-tip": `reached by ${reached.length} of ${seedsText(targets.length)}` },
      targets.map((t) => h("span", { class: "below" }, num(t.threshold) === null ? "–"
        : `${(100 * t.coverage).toFixed(1)}\u202f% ≥\u202f${threshold(t.threshold)}`)));
  });
  return h("div", { class: "grid uneven" }, chart, h("div", {}, risks.length ? table({
    caption: `${label}: share answered, and from which confidence on, at which at most this share of the answers is wrong: a line per ` +
      "seed, on the validation rows that its threshold was chosen on. Of other rows more may be wrong",
    head: risks.map((risk) => ({ text: `${short(100 * risk)}\u202f%` })), bodies: familyBodies(row) }) : ""));
}

/* ---- Costs, configuration, notes ---- */

function costsSection() {
  return section("costs", "Costs",
    how("Trained parameters of the model that a run ended with, pruned ranks gone; numbers kept for prediction beside them are moments, " +
      "curvature factors or a temperature. Members of an ensemble run one after another: their times and parameters add up. Times are " +
      "those of the stated device, other work on the machine included. Memory is the most that the process held while the run was made; in " +
      "brackets what it held at the start, left by earlier runs."),
    metricTables("Parameters, time and memory", "last", [["parameters", "Adapter parameters"], ["stored_parameters", "Kept beside"],
      ["head_parameters", "Head"], ["time_min", "Training, min"], ["predict_s", "Prediction, s"], ["predict_s", `${withDraws}, s`, page.draws ?? 0],
      ["memory_mib", "Memory of the process, MiB"]]));
}
/** The configuration with dotted keys. */
function flatten(prefix, value) {
  if (value && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length) {
    return Object.keys(value).sort().flatMap((key) => flatten(prefix ? `${prefix}.${key}` : key, value[key]));
  }
  const words = Array.isArray(value) && value.every((x) => typeof x === "string") ? value.join(", ")
    : typeof value === "string" ? value : JSON.stringify(value);
  return [[prefix, words]];
}
function originSection() {
  const { model, data } = results;
  const pairs = (entries) => h("div", { class: "config" }, entries.map(([key, value]) =>
    h("div", {}, h("code", {}, key), h("span", {}, value))));
  const files = Object.entries(data).flatMap(([task, record]) => ["train", "validation"].flatMap((split) =>
    record[split].files.map((file) => [`${taskLabel(task)} ${split}: ${file.path}`, file.sha256])));
  const facts = [["model", `${model.name}, from ${model.path}`], ["preset", results.preset], ["seeds", seeds.join(", ")],
    ["device", results.device], ["started", results.started_at], ["finished", results.finished_at || "still running"],
    ["revision", results.tool.git_revision ?? "not recorded"]];
  return section("origin", "Configuration and origin", h("p", { class: "command" }, h("code", {}, results.command)), pairs(facts),
    fold("All settings", pairs(flatten("", results.config))),
    fold("Files and their SHA-256", pairs([...Object.entries(model.weights), ...files])));
}
function notesSection() {
  const notes = [
    ...results.model.notes.map((note) => `${results.model.name}: ${note}`),
    ...page.tasks.flatMap((task) => [
      task.caveat && `${task.label} is not comparable with published numbers: ${task.caveat}.`,
      results.data[task.key]?.note && `${task.label}: ${results.data[task.key].note}`]),
    ...results.runs.filter((run) => !isFinished(run)).map((run) => `${run.method} on ${taskLabel(run.task)}, seed ${run.seed}, ${
      run.status.failed ? `failed: ${run.status.failed.reason}` : "was interrupted"}. It is left out of all tables.`),
    ...results.notes,
  ].filter(Boolean);
  return section("notes", "Notes", notes.length ? h("ul", { class: "caveats" }, notes.map((note) => h("li", {}, note))) : null);
}
const seeds = unique(results.runs.map((run) => run.seed)).sort((a, b) => a - b);
const seedsText = (n) => (n === 1 ? "one seed" : `${n} seeds`);

/* ---- The frame ---- */

function build() {
  const theme = h("button", { id: "theme", type: "button" }, "light / dark");
  const look = document.documentElement.dataset;
  look.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  theme.addEventListener("click", () => { look.theme = look.theme === "dark" ? "light" : "dark"; });
  const { ran, scores, ranks } = page.findings;
  const concluded = page.uncertainty ? scores : [...ranks, ...scores];
  document.querySelector("header").append(theme,
    h("p", { class: "over" }, `${results.suite} · ${results.profile} profile`),
    h("h1", {}, page.uncertainty ? "Which method knows when it is wrong?" : "How much rank does each layer need?"),
    h("p", { class: "lead" }, ran),
    concluded.length ? h("ul", { class: "said" }, concluded.map((words) => h("li", {}, words))) : "");
  const sections = [resultsSection(), publishedSection(), ...(page.uncertainty ? [confidenceSection(), ranksSection()]
    : [ranksSection(), confidenceSection()]), trainingSection(), costsSection(), originSection(), notesSection()].filter(Boolean);
  document.querySelector("nav").append(...sections.map((s) => h("a", { href: `#${s.id}` }, s.querySelector("h2").textContent)));
  document.querySelector("main").append(...sections);
  document.querySelector("footer").append(`${results.tool.name} ${results.tool.version} · schema version ${
    results.schema_version} · figures by d3 and Observable Plot, licences in this file`);
}
build();

/** Paper shows everything: figures are drawn and folded parts open before printing. */
addEventListener("beforeprint", () => {
  document.querySelectorAll("details").forEach((part) => { part.open = true; });
  document.querySelectorAll(".plot").forEach((box) => { if (!box.drawn) box.draw(); });
});
