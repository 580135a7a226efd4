// The page: its sections in reading order, their tables and their words.

/** Parts that the switches change, each with what builds it. */
const liveParts = [];
function live(build) {
  const box = h("div");
  const refresh = () => box.replaceChildren(...[build()].flat(Infinity).filter(Boolean));
  liveParts.push(refresh);
  refresh();
  return box;
}
const how = (...words) => h("p", { class: "how" }, ...words);
const fold = (title, ...content) =>
  content.flat().filter(Boolean).length ? h("details", {}, h("summary", {}, title), ...content) : null;
const grid = (
  size,
  figures
) => (figures.filter(Boolean).length ? h("div", { class: `grid ${size}` }, figures) : null);
const part = (title, ...content) => (content.flat().some(Boolean) ? [h("h3", {}, title), ...content] : []);
const section = (id, title, ...content) => h("section", { id }, h("h2", {}, title), ...content);
const methodName = (name) => [swatch(colour(name), symbol(name)), name];
const seedsText = (n) => (n === 1 ? "one seed" : `${n} seeds`);

/* ---- Tables ---- */

/** The cell of a spread; `answer` says more of it. */
function valueCell(metric, s, { verdict = "", kept = null, only = false, most = 0, bar = null } = {}) {
  if (!s) return h("td", { class: "n absent" }, "–");
  const tips = [
    s.values.length > 1 ? `median ${text(metric, s.median)}; seeds: ${
      s.values.map((x) => text(metric, x)).join(", ")
    }` : "",
    only ? "one answer, no draws" : "",
    verdict === "par" ? "within noise of the best" : "",
    verdict === "best" ? "best beyond noise" : ""
  ];
  const { count } = describe(metric);
  return h("td", { class: `n ${verdict}${only ? " only" : ""}`,
    "data-tip": tips.filter(Boolean).join("; ") || null },
    bar === null ? null
      : h("span", { class: "bar",
        style: `width:${(100 * bar.share).toFixed(1)}%;background:${colour(bar.method)}` }),
    h("b", {}, text(metric, s.mean)),
    // Ranks that all seeds share have nothing to say of their spread.
    s.std !== null && !count && (metric !== "rank" || s.std > 0) ? h("i", {}, stdText(metric, s.std)) : null,
    kept > 0 ? h("i", {}, ` +\u202f${grouped(kept)}`) : null,
    s.n < most ? h("small", {}, ` n=${s.n}`) : null);
}
/** A table whose rows stand in bodies under headings of their own. Rows are `[name, about, cells]`. */
function table({ caption, over = null, head, bodies, dense = true }) {
  const rows = bodies.filter((body) => body.rows.length);
  if (!rows.length) return null;
  const heading = (body) =>
    body.heading
    && h("tr", { class: "family" }, h("th", { scope: "rowgroup", colspan: head.length }, body.heading));
  return h("div", { class: "scroll tips", tabindex: 0, role: "group",
    "aria-label": caption ?? head.map((x) => x.text ?? x).join(", ") },
    h("table", { class: dense ? "dense" : null }, caption ? h("caption", {}, caption) : null,
      h("thead", {}, over, h("tr", {}, head.map((column, i) => {
        const { text: words, title, better = 0, star } = column.text === undefined ? { text: column }
          : column;
        return h("th", { scope: "col", class: i ? "n" : null, "data-tip": title }, words,
          better
            ? h("span", { class: "way", "aria-label": better > 0 ? "higher is better" : "lower is better" },
              better > 0 ? " ↑" : " ↓") : null, star ? h("sup", { "data-tip": star }, "*") : null);
      }))),
      rows.map((body) =>
        h("tbody", {}, heading(body), body.rows.map(([name, about, cells]) =>
          h("tr", {}, h("th", { scope: "row", "data-tip": about }, name), cells)
        ))
      )));
}
/** One row per method that has one, under the headings of the families where colours tell families. */
function familyBodies(row) {
  const rowsOf = (members, named) =>
    members.map((m) => [named(m.name), m.about, row(m.name)]).filter((r) => r[2]);
  if (!page.uncertainty) return [{ rows: rowsOf(page.methods, methodName) }];
  return page.families.map((family) => {
    const members = page.methods.filter((m) => m.family === family);
    return { heading: methodName(members[0].name).slice(0, 1).concat(family),
      rows: rowsOf(members, (name) => name) };
  });
}
const NOISE =
  "Shaded: cannot be told from the best (twice the combined standard error over seeds); bold: best beyond " +
  "that noise.";

const COLUMNS = [
  ["accuracy", "Accuracy"],
  ["standard", "Standard"],
  ["macro_f1", "Macro F1"],
  ["ece", "ECE"],
  ["nll", "NLL"],
  ["brier", "Brier"],
  ["aurc", "Risk area"],
  ["parameters", "Parameters"],
  ["rank", "Rank"],
  ["time_min", "Train, min"],
  ["predict_s", "Predict, s"]
];
/** All methods in one table, for one task or the mean over several, at the state of the switches. */
function methodTable(tasks, what) {
  const { choice, draws } = state;
  const k = (name) => answerDraws(choice, draws, name, tasks);
  const value = (metric, name) => over(choice, metric, k(name), name, tasks);
  const columns = COLUMNS.map(([metric, heading]) => {
    const spreads = page.methods.map((m) => value(metric, m.name));
    const { title, better, digits } = describe(metric);
    const own = metric === "standard" && tasks.length === 1 ? standardOf(tasks[0]) : heading;
    return { metric, spreads, text: own, title, better, verdict: verdicts(spreads, better, digits) };
  }).filter((c) => c.spreads.some(Boolean) && !(c.metric === "standard" && tasks.length > 1));
  // A column that says what another one says is left out.
  const same = (a, b) => a.spreads.every((s, i) => s?.mean === b.spreads[i]?.mean);
  const told = columns.filter((c, i) => !columns.slice(0, i).some((before) => same(before, c)));
  const row = (name) => {
    const i = page.methods.findIndex((m) => m.name === name);
    return told.some((c) => c.spreads[i]) && told.map((c) =>
      valueCell(c.metric, c.spreads[i], {
        verdict: c.verdict[i],
        only: draws > 0 && k(name) === 0 && describe(c.metric).drawn,
        kept: c.metric === "parameters" ? over(choice, "stored_parameters", 0, name, tasks)?.mean : null
      })
    );
  };
  const answer = draws > 0 ? `${draws} draws; in italics: one answer, no draws` : "posterior mean";
  return table({ caption: `${what}: ${choice} checkpoint, ${page.draws ? answer : "one answer each"}`,
    head: ["Method", ...told], bodies: familyBodies(row) });
}
/** Metrics down, tasks across, for a page of a few methods. */
function taskTable(metrics, caption) {
  const { choice } = state;
  const tasks = page.tasks.filter((t) =>
    metrics.some(([m, k]) => page.methods.some((x) => cell(choice, m, k, x.name, t.key)))
  );
  const initial = Math.max(0, ...results.runs.map((run) => run.rank_budget.initial_rank));
  const bodies = metrics.map(([metric, k]) => {
    const { title, better, digits } = describe(metric);
    const columns = tasks.map((t) => {
      // A task whose own metric is the accuracy is told once.
      const again = metric === "standard" && standardOf(t.key) === "accuracy";
      const spreads = page.methods.map((m) => (again ? null : cell(choice, metric, k, m.name, t.key)));
      return { spreads, verdict: verdicts(spreads, better, digits),
        most: Math.max(...spreads.map((s) => s?.n ?? 0)) };
    });
    const rows = page.methods.map((m, i) => [
      methodName(m.name),
      m.about,
      columns.some((c) => c.spreads[i])
      && columns.map((c) => valueCell(metric, c.spreads[i], { verdict: c.verdict[i], most: c.most }))
    ]);
    return { heading: `${title}${metric === "rank" ? `, of ${initial}` : ""}${k ? `, ${k} draws` : ""}`,
      rows: rows.filter((r) => r[2]) };
  });
  const head = tasks.map((t) => ({ star: t.caveat,
    text: metrics.some(([m]) => m === "standard") && standardOf(t.key) !== "accuracy"
      ? `${t.label} (${standardOf(t.key)})` : t.label })
  );
  return table({ caption, head: ["Method", ...head], bodies, dense: false });
}

/* ---- What was run and what follows ---- */

const seeds = unique(results.runs.map((run) => run.seed)).sort((a, b) => a - b);
/** One sentence on a metric of some tasks: who is best beyond noise, or how many cannot be told apart. */
function conclusion(metric, tasks, what) {
  const k = (name) => answerDraws("last", page.draws ?? 0, name, tasks);
  const spreads = page.methods.map((m) =>
    over("last", metric, describe(metric).drawn ? k(m.name) : 0, m.name, tasks)
  );
  const { better, digits } = describe(metric);
  const verdict = verdicts(spreads, better, digits);
  const known = spreads.filter((s) => s?.se !== null && s).length;
  if (known < 2) return `${what}: nothing to compare.`;
  const best = page.methods[verdict.indexOf("best")];
  if (best) return `${what}: ${best.name} is best beyond noise.`;
  const near = verdict.filter((v) => v === "par").length;
  return `${what}: ${
    near ? `${near} of ${known} methods cannot be told from the best` : "no difference beyond noise"
  }.`;
}
function summary() {
  if (!results.runs.length) return ["No run has been recorded."];
  const rows = unique(page.tasks.map(({ key }) => {
    const data = results.data[key];
    const origin = { official: "official", subset: "part of the official data",
      local_dev: "a local split of real data", generated: "generated" };
    return data
      ? `${origin[data.train.origin]} (${grouped(data.train.rows)} training, ${
        grouped(data.validation.rows)
      } validation rows)` : "unknown";
  }));
  const names = page.methods.length > 4 ? `${page.methods.length} methods`
    : list(page.methods.map((m) => m.name));
  const finished = results.runs.filter(isFinished).length;
  const ran =
    `${names} fine-tuned ${results.model.name} on ${list(page.tasks.map((t) => t.label))} with ${
      seedsText(seeds.length)
    }: `
    + `${finished} of ${results.runs.length} runs finished. The data are ${list(rows)}.`;
  if (seeds.length < 2) {
    return [ran, "With one seed, differences between methods cannot be told from chance."];
  }
  const scored = page.uncertainty
    ? [["accuracy", "Accuracy"], ["ece", "Calibration error"], ["nll", "Likelihood"]].map(([m, what]) =>
      classTasks.length ? conclusion(m, classTasks, what) : ""
    )
    : page.tasks.map((t) => conclusion(scoreOf(t.key), [t.key], `${t.label} (${standardOf(t.key)})`));
  return [ran, scored.filter(Boolean).join(" ")];
}
/** How much rank each layer needs, in one sentence: what a method that chooses ranks has left. */
function rankAnswer(group) {
  const records = group.last;
  const initial = mean(group.runs.map((run) => run.rank_budget.initial_rank));
  const average = mean(records.map((r) => r.average_rank));
  if (average === null) return null;
  const by = (field) => {
    const names = unique(page.modules.map((m) => m[field])).filter((name) => name !== null);
    const ranked = names.map((
      name
    ) => [
      name,
      mean(page.modules.filter((m) => m[field] === name).flatMap((m) =>
        records.map((r) => r.ranks[m.path] ?? null)
      ))
    ]).filter((x) => x[1] !== null).sort((a, b) => b[1] - a[1]);
    return ranked.length > 1 ? [ranked[0], ranked.at(-1)] : null;
  };
  const [layer, kind] = [by("layer"), by("kind")];
  return `${group.method} keeps ${short(average, 1)} of ${short(initial, 1)} ranks a module on average`
    + (layer
      ? `, most in layer ${layer[0][0]} (${short(layer[0][1], 1)}), least in layer ${layer[1][0]} (${
        short(layer[1][1], 1)
      })` : "")
    + (kind
      ? `; by type most in ${kind[0][0]} (${short(kind[0][1], 1)}), least in ${kind[1][0]} (${
        short(kind[1][1], 1)
      })` : "")
    + ".";
}

/* ---- Results ---- */

/** Who leads in what, over the tasks with classes, each method at its full answer. */
function leaders() {
  const cards = [
    ["accuracy", "Highest accuracy"],
    ["ece", "Lowest calibration error"],
    ["nll", "Lowest NLL"],
    ["brier", "Lowest Brier score"]
  ];
  return h("div", { class: "cards" }, cards.map(([metric, title]) => {
    const { better, digits } = describe(metric);
    const ranked = page.methods.map((m) => {
      const k = answerDraws("last", page.draws ?? 0, m.name, classTasks);
      return { name: m.name, always: m.always, k, s: over("last", metric, k, m.name, classTasks) };
    }).filter((x) => x.s).sort((a, b) => better * (b.s.mean - a.s.mean));
    if (!ranked.length) return null;
    const verdict = verdicts(ranked.map((x) => x.s), better, digits);
    const near = verdict.filter((v) => v === "par").length || (verdict.includes("best") ? 1 : ranked.length);
    const label = (x) => [x.name, x.k ? h("small", {}, ` ${x.k} draws`) : null];
    const [first] = ranked;
    const note = first.s.se === null ? "one seed: may be chance" : near === 1 ? "alone, beyond noise"
      : near === ranked.length ? `all ${near} within noise` : `with ${near - 1} more within noise`;
    const others = ranked.slice(1).filter((x, i) => i === 0 || x.always);
    return h("div", { class: "card", style: `border-top-color:${colour(first.name)}` }, h("h3", {}, title),
      h("p", { class: "big" }, text(metric, first.s.mean)),
      h("p", { class: "who" }, label(first), h("small", {}, ` · ${note}`)),
      h("dl", {},
        others.map((
          x
        ) => [h("dt", {}, `${ranked.indexOf(x) + 1}. `, label(x)), h("dd", {}, text(metric, x.s.mean))])));
  }));
}
/** A metric over accuracy: from the posterior mean (hollow) to the full answer (filled). */
function tradeoff(metric, tasks, what) {
  const at = (name, k) => {
    const [x, y] = [over("last", "accuracy", k, name, tasks), over("last", metric, k, name, tasks)];
    return x && y && { method: name, k, x: x.mean, y: y.mean, sx: x.se, sy: y.se };
  };
  const marks = page.methods.map((m) => ({ mean: at(m.name, 0),
    drawn: page.draws ? at(m.name, page.draws) : null })
  ).filter((m) => m.mean);
  if (!marks.length) return null;
  const full = marks.map((m) => m.drawn ?? m.mean);
  const trails = marks.filter((m) => m.drawn).map((m) => ({ method: m.mean.method, x1: m.mean.x, y1: m.mean.y,
    x2: m.drawn.x, y2: m.drawn.y })
  );
  const { title: name } = describe(metric);
  const title = (d) =>
    `${d.method}${
      d.k ? `, ${d.k} draws` : trails.some((t) => t.method === d.method) ? ", posterior mean" : ""
    }: `
    + `accuracy ${text("accuracy", d.x)}, ${name} ${text(metric, d.y)}`;
  const hollow = marks.filter((m) => m.drawn).map((m) => m.mean);
  const error = { stroke: (d) => colour(d.method), strokeOpacity: 0.35 };
  const range = (key, side, least) => {
    const ends = [...full, ...hollow].flatMap((d) => [d[key] - (d[side] ?? 0), d[key] + (d[side] ?? 0)]);
    const [low, high] = d3.extent(ends);
    const margin = Math.max(0.07 * (high - low), (least - (high - low)) / 2, 0);
    return [low - margin, high + margin];
  };
  return figure({ label: `${what}: ${name} against accuracy`, height: 450, least: 640, plots: () => ({
    height: 450,
    marginLeft: 60,
    marginBottom: 42,
    grid: true,
    x: { label: "accuracy", domain: range("x", "sx", 0.04), ...CENTRED },
    y: { label: name, domain: range("y", "sy", 0.04), ...CENTRED },
    marks: [
      Plot.ruleX(full.filter((d) => d.sy), { x: "x", y1: (d) => d.y - d.sy, y2: (d) => d.y + d.sy,
        ...error }),
      Plot.ruleY(full.filter((d) => d.sx), { y: "y", x1: (d) => d.x - d.sx, x2: (d) => d.x + d.sx,
        ...error }),
      Plot.link(trails, { x1: "x1", y1: "y1", x2: "x2", y2: "y2", stroke: (d) => colour(d.method),
        strokeOpacity: 0.6 }),
      Plot.dot(hollow, { x: "x", y: "y", r: 3.4, stroke: (d) => colour(d.method), fill: "var(--card)",
        title }),
      Plot.dot(full, { x: "x", y: "y", r: 5.5, symbol: (d) => symbol(d.method), fill: (d) => colour(d.method),
        stroke: "var(--paper)", title }),
      ...markNames(full, "x", "y")
    ]
  }) });
}
const legend = () =>
  h("p", { class: "legend" }, (page.uncertainty ? page.families.map((family) => {
    const first = page.methods.find((m) => m.family === family);
    return [first.name, family];
  }) : page.methods.map((m) => [m.name, m.name])).map(([name, words]) =>
    h("span", { class: "key" }, swatch(colour(name), symbol(name)), words)
  ));
function tradeoffs(tasks, what) {
  const ece = tradeoff("ece", tasks, what);
  if (!ece) return [];
  const trail = page.draws
    ? ` A line leads from the posterior mean (hollow) to the answer of ${page.draws} draws (filled); a method without draws has its one answer filled.`
    : "";
  return part("Calibration against accuracy",
    how(`The better corner is at the lower right. Bars: one standard error over seeds.${trail}`), legend(),
    ece, fold("The same with the likelihood", tradeoff("nll", tasks, what)));
}
/** The score over the average rank of one task: a light dot per seed, a mark with bars for the mean. */
function scatter(task) {
  const score = scoreOf(task);
  const found = page.methods.map((m) => ({ method: m.name, rank: cell(state.choice, "rank", 0, m.name, task),
    score: cell(state.choice, score, 0, m.name, task) })
  ).filter((d) => d.rank && d.score);
  if (!found.length) return null;
  const dots = found.flatMap((d) =>
    d.rank.values.map((x, i) => ({ method: d.method, x, y: d.score.values[i] }))
  );
  const bars = { stroke: (d) => colour(d.method), strokeWidth: 1.6, strokeOpacity: 0.75 };
  const low = Math.max(0, Math.min(...dots.map((d) => d.x)) - 1);
  return figure({ title: taskLabel(task),
    label: `${taskLabel(task)}: ${standardOf(task)} against average rank`, height: 235, least: 280,
    plots: () => ({
      height: 235,
      marginLeft: 60,
      marginBottom: 42,
      x: { label: "average rank per module", nice: true, domain: [low, Math.max(...dots.map((d) => d.x)) + 1],
        ...CENTRED },
      y: { label: standardOf(task), nice: true, ticks: 4, ...CENTRED },
      marks: [
        gridY(),
        Plot.dot(dots, { x: "x", y: "y", r: 3, fill: (d) => colour(d.method), fillOpacity: 0.5 }),
        Plot.ruleY(found.filter((d) => d.rank.std), { y: (d) => d.score.mean,
          x1: (d) => Math.max(low, d.rank.mean - d.rank.std), x2: (d) => d.rank.mean + d.rank.std, ...bars }),
        Plot.ruleX(found.filter((d) => d.score.std), { x: (d) => d.rank.mean,
          y1: (d) => d.score.mean - d.score.std, y2: (d) => d.score.mean + d.score.std, ...bars }),
        Plot.dot(found, { x: (d) => d.rank.mean, y: (d) => d.score.mean, r: 5.5,
          symbol: (d) => symbol(d.method), fill: (d) => colour(d.method), stroke: "var(--paper)",
          title: (d) =>
            `${d.method}: ${text(score, d.score.mean)}${
              d.score.std === null ? "" : stdText(score, d.score.std)
            } at average rank ${short(d.rank.mean)}, ${seedsText(d.score.n)}` })
      ]
    }) });
}
/** How the ranks of methods that do not choose them were set, e.g. matched to those of another method. */
function budgets() {
  const notes = page.methods.map((m) => {
    const found = unique(results.runs.filter((r) => r.method === m.name).map((r) => r.rank_budget.note))
      .filter((note) => note && note !== "learnt");
    return found.length ? `${m.name}: ${found.join(", ")}` : null;
  }).filter(Boolean);
  return notes.length
    ? how(
      `Ranks. ${
        notes.join("; ")
      }. A matched rank follows what the other method ended with on the task, so that both have about the same size.`
    ) : null;
}
function resultsSection() {
  const foot = page.tasks.some((t) => t.caveat)
    ? h("p", { class: "how" }, "* The data are not the official splits; see the notes.") : null;
  const optimistic =
    () => (state.choice === "best"
      ? how("The best checkpoint is chosen on the data it is reported on: optimistic.") : null);
  if (!page.uncertainty) {
    const k = unique(results.runs.flatMap((r) => Object.keys(r.checkpoints.last?.metrics ?? {}).map(Number)))
      .sort((a, b) => a - b);
    const scores = [["accuracy", 0], ...(page.metrics.standard ? [["standard", 0]] : []), ["rank", 0], [
      "time_min",
      0
    ]];
    const quality = [
      ...k.filter((x) => x > 0).map((x) => ["accuracy", x]),
      ...["nll", "ece", "brier"].flatMap((m) => k.map((x) => [m, x]))
    ];
    return section("results", "Results", how(`Mean ± sample standard deviation over seeds. ${NOISE}`),
      live(
        () => [
          optimistic(),
          taskTable(scores, `Scores, ranks and times: ${state.choice} checkpoint`),
          foot,
          budgets(),
          part("Score against rank", legend(), grid("three", taskKeys.map(scatter))),
          part("Likelihood and calibration",
            taskTable(quality, `Likelihood and calibration: ${state.choice} checkpoint`))
        ]
      ));
  }
  const many = classTasks.length > 1;
  const over = many ? `Means over ${classTasks.length} tasks (all scored alike) and over seeds`
    : "Means over seeds";
  const what = `Mean over ${classTasks.length} tasks`;
  const answers = page.draws
    ? `A method with a posterior answers with the mean probabilities of ${page.draws} draws; all others have one answer.`
    : "Each method has one answer, without posterior draws.";
  return section("results", "Results", how(`${over} at the last checkpoint. ${answers}`), leaders(),
    budgets(),
    many
      ? [
        tradeoffs(classTasks, what),
        part("All methods", how(NOISE), live(() => [optimistic(), methodTable(classTasks, what)]))
      ] : null, foot);
}
function publishedSection({ source, choice, rows, caveats }) {
  const metrics = unique(rows.map((row) => row.metric));
  return section("published", "Published and measured",
    how(`In each cell: measured at the ${choice} checkpoint; published in `, h("code", {}, source),
      "; measured minus published, and that in units of the combined standard error of both means. " +
      "Methods that did not run here keep their published numbers."),
    rows.every((row) => !row.measured)
      ? h("p", { class: "how" }, "No published number has a measured partner.") : null,
    metrics.map((metric) => {
      const own = rows.filter((row) => row.metric === metric);
      const tasks = unique(own.map((row) => row.task)).sort((a, b) =>
        a.toLowerCase().localeCompare(b.toLowerCase(), "en")
      );
      const keys = unique(own.map((row) => `${row.method}\n${row.draws}`));
      const cellOf = (row) =>
        h("td", { class: "n" }, row.measured ? h("b", {}, row.measured) : h("span", { class: "absent" }, "–"),
          h("span", { class: "below" }, row.published),
          row.measured
            ? h("span", { class: "below" },
              `${row.difference}${row.standard_errors ? `, ${row.standard_errors} s.e.` : ""}`) : null);
      return table({
        head: [
          metric,
          ...tasks.map((task) => ({ text: task,
            star: own.find((row) => row.task === task && row.caveat)?.caveat })
          )
        ],
        bodies: [{ rows: keys.map((key) => {
          const [method, draws] = key.split("\n");
          const name = methods.has(method) ? methodName(method)
            : h("span", { class: "absent", "data-tip": "did not run here" }, method);
          return [
            [name, draws > 0 ? h("i", {}, ` ${draws} draws`) : null],
            null,
            tasks.map((task) => {
              const row = own.find((r) => r.task === task && `${r.method}\n${r.draws}` === key);
              return row ? cellOf(row) : h("td", { class: "n absent" }, "–");
            })
          ];
        }) }]
      });
    }), h("ul", { class: "caveats" }, caveats.map((caveat) => h("li", {}, caveat))));
}

/* ---- One task ---- */

function curves(task, groups) {
  const end = Math.max(...groups.flatMap((g) => g.runs.map((run) => run.steps)));
  const named = page.uncertainty
    ? highlights((name) =>
      -(mean(
        (groups.find((g) => g.method === name)?.runs ?? []).map((r) => r.history.at(-1)?.accuracy ?? null)
      ) ?? NaN)
    )
    : groups.map((g) => g.method);
  const chart = (title, y, value, options = {}) => {
    const points = groups.flatMap((g) =>
      g.runs.flatMap((run) =>
        run.history.map((p) => ({ method: g.method, seed: run.seed, step: p.step, value: num(value(p)) }))
      )
    ).filter((p) => p.value !== null);
    if (!points.length) return null;
    // The mean is drawn where every seed that has any value has one.
    const means = groups.flatMap(({ method }) => {
      const own = points.filter((p) => p.method === method);
      const n = unique(own.map((p) => p.seed)).length;
      return unique(own.map((p) => p.step)).map((step) => own.filter((p) => p.step === step)).filter((same) =>
        same.length === n
      ).map((same) => ({ method, step: same[0].step, value: mean(same.map((p) => p.value)) }));
    });
    const digits = options.digits ?? 3;
    return figure({ title, label: `${taskLabel(task)}: ${title} over steps`, height: 250,
      plots: stepLines(page.uncertainty ? [] : points, means, { y, end,
        named: named.filter((n) => means.some((d) => d.method === n)), label: (x) => x.toFixed(digits),
        ...options }) });
  };
  const own = standardOf(task);
  return [
    chart("Validation accuracy", "accuracy", (p) => p.accuracy),
    own === "accuracy" ? null : chart(`Validation ${own}`, own, (p) => p.standard),
    chart("Total rank", "sum of ranks", (p) => p.total_rank, { stairs: true, zero: true, digits: 0 }),
    chart("Validation NLL", "NLL (nats per example)", (p) => p.nll_val),
    chart("Training NLL", "NLL (nats per example)", (p) => p.nll),
    chart("KL of the posterior from its prior", "KL (nats)", (p) => p.kl, { zero: true, digits: 1 })
  ];
}
function training(task, groups) {
  const figures = curves(task, groups).filter(Boolean);
  return figures.length ? [
    how(page.uncertainty
      ? "Means over seeds at the posterior mean (no draws). Named: LoRA, BayesLoRA and the most accurate " +
        "of each family."
      : "Thin lines are seeds, bold lines their mean at the posterior mean (no draws)."),
    grid("two", figures)
  ] : [];
}
function rankParts(groups) {
  const moved = (g) => g.runs.some((run) => run.rank_events.length > 1);
  const varied = (g) => moved(g) || g.last.some((r) => unique(Object.values(r.ranks)).length > 1);
  const own = groups.filter((g) => moved(g) || g.last.some((r) => r.statistics));
  const most = Math.max(0,
    ...own.flatMap((g) =>
      g.runs.flatMap((
        run
      ) => [run.rank_budget.initial_rank, ...Object.values(run.checkpoints.last?.ranks ?? {})])
    ));
  const end = Math.max(...groups.flatMap((g) => g.runs.map((run) => run.steps)));
  const byOf = (field, name) =>
    unique(page.modules.map((m) => m[field])).map((value) => ({ name: name(value),
      paths: page.modules.filter((m) => m[field] === value).map((m) => m.path) })
    );
  const rows = [["by layer", byOf("layer", (l) => (l === null ? "other" : `layer ${l}`))], [
    "by module type",
    page.kinds.map((kind) => ({ name: kind, paths: page.modules.filter((m) =>
      m.kind === kind
    ).map((m) => m.path) }))
  ], ["by module", page.modules.map((m) => ({ name: m.label, paths: [m.path] }))]];
  const present = (runs, list) =>
    list.filter((row) =>
      row.paths.some((path) => runs.some((run) => run.rank_events.some((e) => path in e.ranks)))
    );
  const map = (g, runs, [note, list], seed) =>
    figure({ title: methodName(g.method), note: seed ?? note, label: `${g.method}: rank over steps ${note}`,
      ...heatMap(runs, present(runs, list), most, end) });
  const movers = own.filter(moved);
  const dynamics = movers.length
    ? part("Rank dynamics", how("Mean over seeds; hatched cells have rank 0: the adapter is gone."),
      rankKey(most), grid("two", rows.slice(0, 2).flatMap((kind) => movers.map((g) => map(g, g.runs, kind)))),
      fold("By module", grid("two", movers.map((g) => map(g, g.runs, rows[2])))),
      page.uncertainty ? null
        : fold("Every seed by module",
          grid("two",
            movers.filter((g) => g.runs.length > 1).flatMap((g) =>
              g.runs.map((run) => map(g, [run], rows[2], `seed ${run.seed}`))
            )))) : [];
  const pattern = (g, records, note) =>
    figure({ title: methodName(g.method), note, label: `${g.method}: final rank of every module`,
      ...rankGrid(records, most) });
  const settled = own.filter((g) => varied(g) && g.last.length);
  const patterns = part("Final rank patterns",
    grid("three",
      settled.map((g) =>
        pattern(g, g.last, `mean over ${seedsText(g.last.length)}, total ${
          short(mean(g.last.map((r) => r.total_rank)), 1)
        }`)
      )),
    page.uncertainty ? null
      : fold("Every seed",
        grid("three",
          settled.filter((g) => g.last.length > 1).flatMap((g) =>
            g.ended.map(({ seed, record }) =>
              pattern(g, [record], `seed ${seed}, total ${record.total_rank}`)
            )
          ))));
  const answers = settled.map((g) => h("p", { class: "lead" }, rankAnswer(g)));
  const relevance = own.flatMap((g) => {
    const found = g.ended.filter((e) => e.record.statistics).map(({ seed, record: { statistics: s } }) => {
      const drawn = statisticTrellis(s, g.method);
      return drawn
        && figure({ title: methodName(g.method),
          label: `${g.method}, seed ${seed}: ${s.name} of every component`,
          note: `${s.name}, seed ${seed}, ${
            s.threshold === null ? "no threshold: ranked by a budget" : `threshold ${s.threshold}`
          }`, ...drawn });
    }).filter(Boolean);
    return [found[0], page.uncertainty ? null : fold(`${g.method}: the other seeds`, ...found.slice(1))];
  }).filter(Boolean);
  const energies = own.map(energy).filter(Boolean);
  const choices = groups.flatMap((g) => {
    const made = g.runs.filter((run) => run.choice);
    const drawn = made.map(({ seed, choice }) =>
      figure({ title: methodName(g.method), note: `seed ${seed}, rank ${choice.points[choice.chosen].total_rank}`,
        label: `${g.method}, seed ${seed}: held-out loss over rank`, ...choicePath(choice, g.method) })
    );
    return drawn.length ? [grid("two", drawn)] : [];
  });
  return [
    choices.length
      ? part("Held-out loss along the path",
        how(
          "While the KL weight rises, ranks go; every dot is a model that the run passed through, with the " +
          "standard error of its difference to the best. Circled: the fewest ranks that held-out training " +
          "rows cannot tell from the best, from which training went on."
        ), choices) : [],
    settled.length
      ? part("How much rank does each layer need?", answers,
        how("Last checkpoint: layers down, module types across.")) : [],
    patterns.slice(1),
    dynamics,
    relevance.length
      ? part("Relevance of every component",
        how(
          "Filled: present at the last checkpoint; hollow: its value when it was removed. Band: the " +
          "largest gap between neighbours; dashed: the threshold. Components stand in order of their " +
          "value."
        ), relevance) : [],
    energies.length
      ? part("Energy captured",
        how(
          "Share of the mean update carried by its first components: in the learned order, by factor " +
          "norms (a control that knows no posterior), in random order, and the bound by singular values. " +
          "Thin lines are modules."
        ), grid("two", energies)) : []
  ].flat();
}
/** Energy of the first components, averaged over modules and seeds. */
function energy(group) {
  const records = group.last.flatMap((r) => Object.values(r.energy)).filter((e) => e.learned.length > 1);
  if (!records.length) return null;
  const area = (key) => mean(group.last.map((r) => mean(Object.values(r.energy).map((e) => e.auc[key]))));
  const share = (curve) =>
    curve.map((value, k) => [k / (curve.length - 1), num(value)]).filter((p) => p[1] !== null);
  const kinds = [
    ["svd", "SVD bound", "svd", { stroke: "var(--ink)" }],
    ["magnitude", "by magnitude", "magnitude", { stroke: "var(--soft)", strokeDasharray: "7 4" }],
    ["random_mean", "random mean", "random", { stroke: "var(--soft)", strokeDasharray: "2 4" }],
    ["learned", "learned order", "learned", { stroke: colour(group.method), strokeWidth: 2.5 }]
  ];
  const lines = kinds.map(([key, name, auc, style]) => ({ name, style, area: area(auc),
    points: d3.range(21).map((i) => [i / 20, mean(records.map((e) => readCurve(share(e[key]), i / 20)))]) })
  );
  const gap = area("normalised_gap");
  const modules = records.flatMap((e, i) => share(e.learned).map(([x, y]) => ({ i, x, y })));
  return figure({ title: methodName(group.method),
    note: `${records.length} modules over all seeds${
      gap === null ? "" : `, normalised gap ${gap.toFixed(3)}`
    }`, label: `${group.method}: energy captured by the first components`, height: 290, plots: (width) => ({
      height: 290,
      marginLeft: 56,
      marginRight: 12,
      marginBottom: 40,
      x: { label: "share of components, k / rank", ...CENTRED },
      y: { label: "energy captured", domain: [0, 1], ...CENTRED },
      marks: [
        gridY(),
        Plot.line(modules, { x: "x", y: "y", z: "i", stroke: colour(group.method), strokeOpacity: 0.14,
          strokeWidth: 1 }),
        ...lines.map((l) => Plot.line(l.points, { x: "0", y: "1", strokeWidth: 1.6, ...l.style })),
        ...lines.map((l) =>
          Plot.dot(l.points, { x: "0", y: "1", r: 4, fill: "transparent",
            title: (p) => `${l.name}: ${p[1].toFixed(3)} at ${p[0]}; area ${l.area?.toFixed(3)}` })
        ),
        ...[...lines].sort((a, b) => b.area - a.area).flatMap((l, i) => [
          Plot.line([[0.5, 0.42 - 0.09 * i], [0.57, 0.42 - 0.09 * i]], { strokeWidth: 1.6, ...l.style }),
          Plot.text([[0.59, 0.42 - 0.09 * i]], {
            text: [width < 460 ? l.name : `${l.name}, area ${l.area?.toFixed(3)}`],
            textAnchor: "start"
          })
        ])
      ]
    }) });
}
const MEASURES = [
  ["Accuracy", "accuracy", 3, (r, k) => r.metrics[k]?.accuracy],
  ["Calibration", "ECE", 3, (r, k) =>
    r.metrics[k]?.ece],
  ["Likelihood", "NLL (nats)", 3, (r, k) =>
    r.metrics[k]?.nll],
  [
    "Latency",
    "milliseconds per question",
    2,
    (r, k) => (r.metrics[k]?.n ? (r.predict_seconds[k] * 1000) / r.metrics[k].n : null)
  ]
];
/** What one more posterior draw buys: metrics and time against the number of draws. */
function sweep(task) {
  const found = page.methods.map((m) => ({ method: m.name, records: lastOf(task, m.name) })).filter((f) =>
    f.records.some((r) => Object.keys(r.metrics).some((k) => k > 0))
  );
  if (!found.length) return [];
  const draws = unique(found.flatMap((f) => f.records.flatMap((r) => Object.keys(r.metrics).map(Number))))
    .sort((a, b) => a - b);
  const eceOf = (name) => {
    const f = found.find((x) => x.method === name);
    return f ? mean(f.records.map((r) => r.metrics[fullDraws(f.records)]?.ece)) : null;
  };
  const bold = highlights(eceOf);
  const room = Math.max(...found.map((f) => f.method.length));
  const height = Math.max(280, 14 * found.length + 56);
  return part("What posterior draws buy",
    how(
      "Means over seeds; bold: BayesLoRA and the best calibrated of each family. Where the draws of a " +
      "smaller number are the first of a larger one, one pass answers for all of them and its time is " +
      "shared out."
    ), grid("two", MEASURES.map(([title, axis, digits, value]) => {
      const points = found.flatMap((f) =>
        draws.map((k) => ({ method: f.method, k, value: mean(f.records.map((r) => num(value(r, k)))) }))
      ).filter((p) => p.value !== null);
      const lines = found.map((f) => points.filter((p) => p.method === f.method)).filter((line) =>
        line.length > 1
      );
      if (!lines.length) return null;
      const all = lines.flat();
      const weight = (d) => (bold.includes(d.method) ? 2.4 : 1.1);
      return figure({ title, label: `${taskLabel(task)}: ${title} by number of posterior draws`, height,
        plots: (width) => ({
          height,
          marginLeft: 70,
          marginRight: Math.min(16 + 7.4 * room, width / 3),
          marginBottom: 40,
          x: { type: "point", domain: draws, label: "posterior draws (0: the mean)", ...CENTRED,
            padding: 0.1 },
          y: { label: axis, nice: true, ...CENTRED },
          marks: [
            gridY(),
            ...lines.map((line) =>
              Plot.line(line, { x: "k", y: "value", stroke: colour(line[0].method),
                strokeWidth: weight(line[0]) })
            ),
            Plot.dot(all, { x: "k", y: "value", r: 2.8, fill: (d) => colour(d.method),
              title: (d) => `${d.method}, ${d.k} draws: ${d.value.toFixed(digits)}` }),
            endNames(lines.map((line) => ({ ...line.at(-1), name: line[0].method })), "k", "value")
          ]
        }) });
    })));
}
/** Answering only where sure: risk over coverage, and what a wanted risk costs. */
function selection(task) {
  const found = page.methods.map((m) => {
    const records = lastOf(task, m.name);
    const k = fullDraws(records);
    const own = records.map((r) => r.selective[k]).filter(Boolean);
    return { method: m.name, own, area: mean(own.map((s) => s.area)) };
  }).filter((f) => f.area !== null);
  if (!found.length) return [];
  const bold = page.uncertainty ? highlights((name) => found.find((f) => f.method === name)?.area ?? null)
    : found.map((f) => f.method);
  const lines = found.map((f) => ({ ...f,
    points: d3.range(1, 51).map((i) => ({ method: f.method, area: f.area, x: i / 50,
      y: mean(f.own.map((s) => readCurve(s.curve, i / 50))) })
    ).filter((p) => p.y !== null) })
  ).filter((l) => l.points.length);
  // Below a tenth of the questions a single early mistake is a risk of one.
  const top = Math.max(0.01, ...lines.flatMap((l) => l.points.filter((p) => p.x >= 0.1).map((p) => p.y)));
  const names = lines.filter((l) => bold.includes(l.method)).map((l) => ({ ...l.points.at(-1),
    name: `${l.method} ${text("aurc", l.area)}` })
  );
  const room = Math.max(...names.map((d) => d.name.length));
  const chart = figure({ label: `${taskLabel(task)}: risk against coverage`, height: 400, least: 330,
    plots: (width) => ({
      height: 400,
      marginLeft: 58,
      marginRight: Math.min(14 + 7.2 * room, width / 2.4),
      marginBottom: 40,
      x: { domain: [0, 1], ticks: 5, label: "coverage: share of questions answered", ...CENTRED },
      y: { domain: [0, top], nice: true, label: "risk: share of wrong answers", ...CENTRED },
      marks: [
        gridY(),
        ...[...lines].sort((a, b) => bold.includes(a.method) - bold.includes(b.method)).map((l) =>
          Plot.line(l.points, { x: "x", y: "y", clip: true, stroke: colour(l.method),
            strokeWidth: bold.includes(l.method) ? 2.4 : 1,
            strokeOpacity: bold.includes(l.method) ? 1 : 0.4 })
        ),
        Plot.dot(lines.flatMap((l) => l.points), { x: "x", y: "y", r: 3.5, fill: "transparent", clip: true,
          title: (d) =>
            `${d.method}: risk ${d.y.toFixed(3)} at coverage ${d.x}; area ${text("aurc", d.area)}` }),
        endNames(names, "x", "y")
      ]
    }) });
  const risks = unique(found.flatMap((f) => f.own.flatMap((s) => s.targets.map((t) => t.risk)))).filter((x) =>
    num(x) !== null
  ).sort((a, b) => a - b);
  const columns = risks.map((risk) => {
    const of = found.map((f) => f.own.flatMap((s) => s.targets.filter((t) => t.risk === risk)));
    const spreads = of.map((
      ts
    ) => (ts.some((t) => t.threshold !== null) ? spread(ts.map((t) => t.coverage)) : null));
    return { of, spreads, verdict: verdicts(spreads, 1, 3) };
  });
  const row = (name) => {
    const i = found.findIndex((f) => f.method === name);
    return i >= 0 && columns.map(({ of, spreads, verdict }) => {
      const reached = of[i].map((t) => t.threshold).filter((t) => num(t) !== null);
      if (!spreads[i] || !reached.length) {
        return h("td", { class: "n absent", "data-tip": "no threshold reaches this risk" }, "–");
      }
      return h("td", { class: `n ${verdict[i]}`,
        "data-tip": reached.length < of[i].length
          ? `reached by ${reached.length} of ${seedsText(of[i].length)}` : null },
        h("b", {}, `${(100 * spreads[i].mean).toFixed(1)}\u202f%`),
        h("i", {}, ` ≥\u202f${mean(reached).toFixed(2)}`));
    });
  };
  return part("Answering only where sure",
    how(
      "Questions are answered in the order of confidence, each method at its full answer, averaged over " +
      "seeds. Beside each name: the area under its curve (0 is perfect)."
    ),
    h("div", { class: "grid uneven" }, chart,
      risks.length
        ? table({
          caption:
            "Share of questions answered, and from which confidence on, where this share of the answers " +
            "given may be wrong:",
          head: ["Method", ...risks.map((risk) => `${short(100 * risk)}\u202f%`)],
          bodies: familyBodies(row)
        }) : null));
}
function calibration(groups) {
  const shown = [0, ...(page.draws ? [page.draws] : [])];
  const eceOf = (name) => {
    const g = groups.find((x) => x.method === name);
    return g ? mean(g.last.map((r) => r.reliability[fullDraws(g.last)]?.ece ?? null)) : null;
  };
  const front = page.uncertainty ? highlights(eceOf) : page.methods.map((m) => m.name);
  const diagrams = (g) =>
    shown.map((k) => {
      const own = g.last.map((r) => r.reliability[k]).filter(Boolean);
      const bins = pool(own);
      if (!bins.length) return null;
      const drawn = g.last.some((r) => Object.keys(r.reliability).some((x) => x > 0));
      const note = k ? `${k} draws` : drawn ? "mean" : "";
      return figure({ title: methodName(g.method), note, label: `${g.method} ${note}: reliability diagram`,
        ...reliability(bins, mean(own.map((r) => r.ece)) ?? NaN, g.method) });
    });
  const convention = groups.flatMap((g) => g.last.flatMap((r) => Object.values(r.reliability)))[0]
    ?.convention;
  if (!convention) return [];
  return part("Calibration",
    how(
      "Bars: accuracy; tick: mean confidence; hatched: the gap between them; below: examples per bin. " +
      "Bins pooled over seeds, ECE is the mean of the seeds' values, binning ",
      h("code", {}, convention),
      "."
    ), grid("four", groups.filter((g) => front.includes(g.method)).flatMap(diagrams)),
    fold("The other methods",
      grid("four", groups.filter((g) => !front.includes(g.method)).flatMap(diagrams))));
}
function taskSection(task, index) {
  const groups = page.methods.map((m) => {
    const runs = runsOf(task.key, m.name);
    const ended = runs.map((run) => ({ seed: run.seed, record: run.checkpoints.last })).filter((e) =>
      e.record
    );
    return { method: m.name, runs, ended, last: ended.map((e) => e.record) };
  }).filter((g) => g.runs.length);
  const data = results.data[task.key];
  const lead = data
    && [
      h("p", { class: "how" },
        `${grouped(data.train.rows)} training and ${
          grouped(data.validation.rows)
        } validation examples; standard metric: ${data.standard_metric}.`),
      task.caveat
        ? h("p", { class: "warn" }, h("b", {}, "Not comparable with published numbers: "), `${task.caveat}.`)
        : null
    ];
  const train = training(task.key, groups);
  const parts = page.uncertainty
    ? [
      live(() => methodTable([task.key], task.label)),
      tradeoffs([task.key], task.label),
      sweep(task.key),
      selection(task.key),
      calibration(groups),
      fold("Training curves", ...train),
      fold("Ranks: answer, patterns, dynamics, relevance, energy", ...rankParts(groups))
    ]
    : [part("Training", train), rankParts(groups), calibration(groups), sweep(task.key), selection(task.key)];
  return section(`task-${index + 1}`, task.label, lead, parts);
}

/* ---- Other sets, costs, origin, notes ---- */

function oodSection() {
  const tables = page.tasks.map((task) => {
    const runs = results.runs.filter((run) => run.task === task.key && isFinished(run));
    const sets = unique(runs.flatMap((run) => Object.keys(oodOf(run)))).sort();
    if (!sets.length) return null;
    const columns = sets.flatMap((set) =>
      [
        [0, "auroc_entropy", "entropy"],
        ...(page.draws
          ? [[page.draws, "auroc_entropy", "entropy"], [
            page.draws,
            "auroc_mutual_information",
            "mutual information"
          ]] : []),
        // By the letters of the other set.
        ...[["accuracy", 1], ["nll", -1], ["ece", -1]].flatMap(([key, way]) =>
          [0, ...(page.draws ? [page.draws] : [])].map((k) => [k, key, describe(key).title, way])
        )
      ].map(([k, key, words, way = 1]) => {
        const spreads = page.methods.map((m) =>
          spread(runs.filter((r) => r.method === m.name).map((r) => oodOf(r)[set]?.[k]?.[key] ?? null))
        );
        const metric = key.startsWith("auroc") ? "auroc" : key;
        return { metric, text: `${words}, k\u202f=\u202f${k}`, spreads, verdict: verdicts(spreads, way, 3) };
      })
    );
    const row = (name) => {
      const i = page.methods.findIndex((m) => m.name === name);
      return columns.some((c) => c.spreads[i])
        && columns.map((c) => valueCell(c.metric, c.spreads[i], { verdict: c.verdict[i] }));
    };
    const counts = sets.map((set) =>
      `${Object.values(oodOf(runs.find((r) => oodOf(r)[set]))[set])[0]?.n} of ${page.sets[set]}`
    );
    const over = h("tr", { class: "over-head" }, h("td"),
      sets.map((set) =>
        h("th", { scope: "colgroup", colspan: columns.length / sets.length }, page.sets[set])
      ));
    return [
      h("h3", {}, `Trained on ${task.label}`),
      how(`Questions of the other sets: ${counts.join(", ")}.`),
      table({ over, head: ["Other sets", ...columns.map(({ text }) => ({ text }))], bodies: familyBodies(row) })
    ];
  }).filter(Boolean);
  return tables.length
    ? section("ood", "Out-of-distribution questions",
      how(
        "Each model answers questions it was not trained for. With the labels of its own set, the area " +
        "under the ROC curve says how well its uncertainty tells them from its own validation questions: " +
        "1 is always, one half is chance. Mutual information needs several draws. Accuracy, " +
        "likelihood and calibration are those of the answers by the other set's own labels."
      ), tables) : null;
}
function costsSection() {
  const rows = page.tasks.flatMap((task) =>
    page.methods.map((m) => {
      const runs = runsOf(task.key, m.name);
      if (!runs.length) return null;
      const count = (key) => spread(runs.map((r) => r.trainable_parameters[key]));
      const predict = (k) => spread(runs.map((r) => r.checkpoints.last?.predict_seconds[k] ?? null));
      return { task, method: m.name, seeds: runs.map((r) => r.seed).join(", "), adapter: count("adapter"),
        posterior: count("posterior"), stored: count("stored"), head: count("head"),
        train: spread(runs.map((r) => (num(r.train_seconds) === null ? null : r.train_seconds / 60))),
        predict: predict(0), drawn: page.draws ? predict(page.draws) : null,
        speed: spread(runs.map((r) => (r.train_seconds > 0 ? r.steps / r.train_seconds : null))),
        memory: spread(runs.map((r) => (r.peak_memory_bytes ? r.peak_memory_bytes / 2 ** 20 : null))) };
    })
  ).filter(Boolean);
  const columns = [
    ["adapter", "Adapter params", "parameters", true],
    ["posterior", "Posterior", "parameters"],
    ["stored", "+ Kept", "parameters"],
    ["head", "Head", "parameters"],
    ["train", "Training (min)", "time_min", true],
    ["speed", "Steps / s", "rank"],
    ["predict", "Prediction (s)", "predict_s"],
    ["drawn", `${page.draws} draws (s)`, "predict_s"],
    ["memory", "Memory (MiB)", "memory_mib", true]
  ].filter(([key]) =>
    rows.some((row) => row[key]) && (key !== "stored" || rows.some((row) => row.stored?.mean > 0))
  );
  const most = (key) => Math.max(...rows.map((row) => row[key]?.mean ?? 0));
  const bodies = page.tasks.map((task) => ({ heading: task.label,
    rows: rows.filter((row) => row.task === task).map((
      row
    ) => [
      methodName(row.method),
      `seeds ${row.seeds}`,
      columns.map(([key, , metric, barred]) =>
        valueCell(metric, row[key], {
          bar: barred && row[key] && most(key) > 0 ? { share: row[key].mean / most(key), method: row.method }
            : null
        })
      )
    ]) })
  );
  return section("costs", "Parameters, time and memory",
    how(
      "Trained parameters of the model that a run ended with, pruned ranks gone, as mean over seeds, and " +
      "where there are any the numbers kept for prediction beside them, such as moments, curvature " +
      "factors or a temperature; times and memory as mean and standard deviation, unfinished runs " +
      "included. Members of an ensemble run one after another: their times and parameters add up. Bars " +
      "compare within a column."
    ), table({ head: ["Method", ...columns.map(([, words]) => words)], bodies }));
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
  const origin = { official: "official", subset: "subset", local_dev: "local split", generated: "generated" };
  const rows = Object.entries(data).flatMap(([task, record]) =>
    ["train", "validation"].flatMap((split) =>
      record[split].files.map((file, i) => [taskLabel(task), null, [
        h("td", {}, split),
        h("td", {}, h("code", {}, file.path)),
        h("td", { class: "n" }, i ? "" : grouped(record[split].rows)),
        h("td", {}, origin[record[split].origin]),
        h("td", { "data-tip": file.sha256 }, h("code", {}, file.sha256.slice(0, 12)))
      ]])
    )
  );
  return section("origin", "Configuration and origin",
    part("Resolved configuration",
      h("div", { class: "config" },
        flatten("", results.config).map(([key, value]) =>
          h("div", {}, h("code", {}, key), h("span", {}, value))
        ))),
    part("Model", h("p", {}, `${model.name}, read from `, h("code", {}, model.path), "."),
      h("ul", {},
        Object.entries(model.weights).map(([file, hash]) =>
          h("li", {}, h("code", {}, file), " ", h("code", {}, hash))
        ), model.notes.map((note) => h("li", {}, note)))),
    part("Data",
      table({ head: ["Task", "Split", "File", "Rows", "Origin", "SHA-256"], bodies: [{ rows }] })));
}
function notesSection() {
  const n = seeds.length;
  const notes = [
    n === 0 ? "No run has been recorded."
      : n === 1 ? "One seed: no spread can be stated, and differences between methods may be chance."
      : `${n} seeds: ± is the sample standard deviation (divisor n − 1) of ${n} values, itself a rough estimate. Noise is twice the combined standard error of two means over seeds; what the choice of validation examples adds to it is not in it.`,
    "The best checkpoint is chosen on the validation data it is reported on, so its numbers are " +
    "optimistic; the last checkpoint is the fair comparison. Ranks, metrics and figures of one table or " +
    "figure belong to one checkpoint.",
    ...page.tasks.flatMap((
      task
    ) => [
      task.caveat && `${task.label} (marked *): ${task.caveat}. Not comparable with published numbers.`,
      results.data[task.key]?.note && `${task.label}: ${results.data[task.key].note}`
    ]),
    ...results.runs.filter((run) => !isFinished(run)).map((run) =>
      `${run.method} on ${taskLabel(run.task)}, seed ${run.seed}, ${
        run.status.failed ? `failed: ${run.status.failed.reason}` : "was interrupted"
      }. It is left out of all tables.`
    ),
    page.draws
    && `The posterior mean is one deterministic answer. An answer of ${page.draws} draws is the mean of the probabilities of ${page.draws} fixed draws, which all examples share.`,
    "Time is training time on the stated device, evaluation not counted; other work on the machine enters it.",
    ...results.notes
  ];
  return section("notes", "Notes and caveats",
    h("ul", { class: "caveats" }, notes.filter(Boolean).map((note) => h("li", {}, note))));
}

/* ---- The frame ---- */

/** Buttons of which one is chosen. */
function switcher(about, key, options) {
  return h("fieldset", { class: "toggle" }, h("legend", {}, about), options.map(([value, words]) => {
    const input = h("input", { type: "radio", name: key, id: `${key}-${value}`,
      checked: state[key] === value });
    input.addEventListener("change", () => {
      state[key] = value;
      liveParts.forEach((refresh) => refresh());
    });
    return [input, h("label", { for: `${key}-${value}` }, words)];
  }));
}
function build() {
  const facts = [
    ["Model", `${results.model.name}, ${grouped(results.model.parameters)} parameters`],
    ["Preset", results.preset],
    ["Seeds", seeds.join(", ")],
    ["Device", results.device],
    ["Started", results.started_at],
    ["Finished", results.finished_at || "still running"],
    ["Revision", results.tool.git_revision ?? "not recorded"]
  ];
  const theme = h("button", { id: "theme", type: "button" }, "light / dark");
  const look = document.documentElement.dataset;
  look.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  theme.addEventListener("click", () => {
    look.theme = look.theme === "dark" ? "light" : "dark";
  });
  document.querySelector("header").append(theme,
    h("p", { class: "over" }, `Low-rank adapters · ${results.suite} · ${results.profile} profile`),
    h("h1", {},
      page.uncertainty ? "Which method knows when it is wrong?" : "How much rank does each layer need?"),
    ...summary().map((words) => h("p", { class: "lead" }, words)),
    h("p", { class: "command" }, h("code", {}, results.command)),
    h("dl", { class: "facts" },
      facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))));
  const sections = [
    resultsSection(),
    page.comparison ? publishedSection(page.comparison) : null,
    ...page.tasks.map(taskSection),
    oodSection(),
    costsSection(),
    originSection(),
    notesSection()
  ].filter(Boolean);
  const short = { published: "Published", ood: "Out of distribution", costs: "Costs", origin: "Configuration",
    notes: "Notes" };
  const hasBest = results.runs.some((run) => run.checkpoints.best);
  document.querySelector("nav").append(
    h("span", { class: "links" },
      sections.map((s) => h("a", { href: `#${s.id}` }, short[s.id] ?? s.querySelector("h2").textContent))),
    h("span", { class: "toggles" },
      hasBest
        ? switcher("Checkpoint of the tables", "choice", [["last", "Last checkpoint"], ["best", "Best"]])
        : null,
      page.uncertainty && page.draws
        ? switcher("Posterior draws of the tables", "draws", [[page.draws, `${page.draws} draws`], [
          0,
          "Mean"
        ]]) : null)
  );
  document.querySelector("main").append(...sections);
  document.querySelector("footer").append(
    `${results.tool.name} ${results.tool.version} · schema version ${results.schema_version} · figures by d3 and Observable Plot, licences in this file`
  );
}
build();

/** Paper shows everything: figures are drawn and folded parts open before printing. */
addEventListener("beforeprint", () => {
  document.querySelectorAll("details").forEach((part) => {
    part.open = true;
  });
  document.querySelectorAll(".plot").forEach((box) => {
    if (!box.drawn) box.draw();
  });
});
