// Drawing: figures that are drawn when they come into view and again when their width changes, and one tooltip for
// the pointer and the keyboard.

/** An element with attributes and children; strings become text, empty children are left out. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== ""));
  return element;
}

/* ---- Tooltips ---- */

const tip = document.getElementById("tip");
let tipped = null;
function showTip(mark) {
  tipped?.classList.remove("tipped");
  tipped = mark;
  tip.hidden = !mark;
  if (!mark) return;
  mark.classList.add("tipped");
  tip.textContent = mark.getAttribute("data-tip");
  const [box, own] = [mark.getBoundingClientRect(), tip.getBoundingClientRect()];
  const left = Math.min(box.left + box.width / 2 + 12, window.innerWidth - own.width - 8);
  const below = box.bottom + 10;
  const fits = below + own.height < window.innerHeight - 8;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${fits ? below : Math.max(8, box.top - own.height - 10)}px`;
}
document.addEventListener("mousemove", (event) => {
  const mark = event.target.closest?.("[data-tip]") ?? null;
  if (mark !== tipped) showTip(mark);
});
document.addEventListener("scroll", () => { if (!document.activeElement?.closest(".tips")) showTip(null); }, { passive: true });
document.addEventListener("focusout", () => showTip(null));
/** Arrow keys walk through the marks of the figure or table that has the focus; Escape leaves. */
document.addEventListener("keydown", (event) => {
  const host = document.activeElement?.closest?.(".tips");
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  if (event.key === "Escape") showTip(null);
  if (!host || !(event.key in steps)) return;
  const marks = [...host.querySelectorAll("[data-tip]")];
  if (!marks.length) return;
  event.preventDefault();
  const from = marks.indexOf(tipped);
  const next = marks[(from + steps[event.key] + marks.length) % marks.length] ?? marks[0];
  next.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
  showTip(next);
});

/* ---- Figures ---- */

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((e) => e.isIntersecting)) entry.target.draw();
}, { rootMargin: "800px" });
const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) if (target.drawn && target.drawn !== target.clientWidth) target.draw();
});

/**
 * A figure under its title. `plots` gives plot options for a width, one or several drawings below each other; below
 * `least` pixels the figure scrolls. `height` holds its place until it is drawn.
 */
function figure({ title, note, label, height, least = 300, plots }) {
  const box = h("div", { class: "plot tips scroll", tabindex: 0, role: "group", "aria-label": label,
    "aria-describedby": "keys", style: `min-height:${height}px` });
  box.draw = () => {
    seen.unobserve(box);
    box.drawn = box.clientWidth;
    const width = Math.max(least, box.clientWidth);
    const drawings = [plots(width)].flat().map((options) => Plot.plot({
      width, ariaLabel: label, style: { fontSize: "12px", background: "none" }, ...options }));
    for (const text of drawings.flatMap((svg) => [...svg.querySelectorAll("title")])) {
      text.parentNode.setAttribute("data-tip", text.textContent);
      text.remove();
    }
    for (const svg of drawings) svg.style.minWidth = `${least}px`;
    box.replaceChildren(...drawings);
    box.style.minHeight = "";
    for (const svg of drawings) svg.setAttribute("role", "img");
    box.hint();
  };
  seen.observe(box);
  resized.observe(box);
  const caption = h("figcaption", {}, title ? h("b", {}, title) : null, note ? h("span", {}, note) : null);
  return h("figure", {}, caption.childNodes.length ? caption : null, scroller(box));
}

/** What may be wider than the page, above a hint that it goes on at the side. */
function scroller(box) {
  const hint = h("p", { class: "hint", "aria-hidden": "true", hidden: true }, "wider than the screen: scroll sideways \u2192");
  box.hint = () => { hint.hidden = box.scrollWidth <= box.clientWidth + 1; };
  new ResizeObserver(box.hint).observe(box);
  return [box, hint];
}

/** Axis titles in the middle; those of y stand clear of the tick labels, those of x below them. */
const CENTRED = { labelAnchor: "center", labelArrow: "none" };
const GRID = { stroke: "var(--hair)", strokeOpacity: 1 };
const gridY = () => Plot.gridY(GRID);

/** Pushes heights apart to at least `gap`, in their order, within `[low, high]`. */
function apart(heights, gap, low, high) {
  const order = heights.map((y, i) => i).sort((a, b) => heights[a] - heights[b]);
  const placed = [...heights];
  let edge = low - gap;
  for (const i of order) edge = placed[i] = Math.max(heights[i], edge + gap);
  let ceiling = high;
  for (const i of order.reverse()) {
    placed[i] = Math.min(placed[i], ceiling);
    ceiling = placed[i] - gap;
  }
  return placed;
}

/** Names beside the ends of lines, pushed apart where they would touch. */
function endNames(ends, x, y, { bold = () => true } = {}) {
  const shift = Plot.initializer({ x, y, text: "name", fill: (d) => colour(d.method), textAnchor: "start", dx: 7,
    fontWeight: 650 },
  (data, facets, { x: X, y: Y }, scales, dimensions) => {
    const heights = Array.from(Y.value, scales.y);
    const placed = apart(heights, 14, dimensions.marginTop, dimensions.height - dimensions.marginBottom);
    return { data, facets, channels: { y: { value: placed } } };
  });
  return Plot.text(ends.filter((d) => bold(d)), shift);
}

/** Lines over steps: a thin line per seed, a bold one for their mean. */
function stepLines(points, means, { y, stairs = false, zero = false, end, named, label }) {
  const curve = stairs ? "step-after" : "linear";
  const strong = means.filter((d) => named.includes(d.method));
  const weak = means.filter((d) => !named.includes(d.method));
  const ends = named.map((name) => means.findLast((d) => d.method === name)).filter(Boolean);
  return (width) => ({
    height: 250, ...stepFrame(width, end), y: { label: y, nice: true, zero, ticks: 5, ...CENTRED },
    marks: [
      gridY(), stepGrid(end),
      Plot.line(points, { x: "step", y: "value", z: (d) => `${d.method} ${d.seed}`, curve,
        stroke: (d) => colour(d.method), strokeOpacity: 0.45, strokeWidth: 1 }),
      Plot.line(weak, { x: "step", y: "value", z: "method", curve, stroke: (d) => colour(d.method), strokeOpacity: 0.45 }),
      Plot.line(strong, { x: "step", y: "value", z: "method", curve, stroke: (d) => colour(d.method), strokeWidth: 2.4 }),
      Plot.dot(means, { x: "step", y: "value", r: 4.5, fill: "transparent", stroke: "none",
        title: (d) => `${d.method}: ${label(d.value)} at step ${d.step}` }),
      endNames(ends.map((d) => ({ ...d, name: d.method })), "step", "value"),
    ],
  });
}

/** The frame, axis and grid that all charts over steps share: the same steps stand below each other. */
const stepTicks = (end) => d3.ticks(0, end, 5);
const stepFrame = (width, end) => ({
  marginLeft: 76, marginBottom: 38,
  marginRight: Math.min(14 + 7.6 * Math.max(...page.methods.map((m) => m.name.length), 6), width / 3),
  x: { domain: [0, end], ticks: stepTicks(end), label: "step", ...CENTRED },
});
const stepGrid = (end) => Plot.gridX(stepTicks(end), GRID);

/** Shade of a rank: hatched where the adapter is gone. */
const shadeOf = (rank, most) => Math.min(16, Math.max(1, Math.round((rank / most) * 16)));
const shade = (rank, most) => (rank <= 0 || most <= 0 ? "url(#removed)" : `var(--h${shadeOf(rank, most)})`);
const onShade = (rank, most) => (shadeOf(rank, most) > 8 ? "var(--on-strong)" : "var(--on-weak)");

/** Ranks over steps: rows of modules, averaged over runs; neighbours of one value become one cell. */
function heatMap(runs, rows, most, end) {
  const steps = unique(runs.flatMap((run) => run.rank_events.map((e) => e.step))).sort((a, b) => a - b);
  // Ranks that change at the very end are seen there.
  const begin = (step) => Math.min(step, 0.985 * end);
  const cells = [];
  for (const { name, paths } of rows) {
    let open = null;
    for (const step of steps) {
      const rank = mean(paths.map((path) => rankAt(runs, path, step)));
      if (rank === null || rank === open?.rank) continue;
      if (open) open.until = begin(step);
      cells.push((open = { name, step, from: begin(step), until: end, rank }));
    }
  }
  const height = 46 + 17 * rows.length;
  return { height, plots: (width) => ({
    height, ...stepFrame(width, end), marginTop: 6,
    y: { domain: rows.map((row) => row.name), label: null, tickSize: 0, padding: 0.06 },
    marks: [stepGrid(end), Plot.barX(cells, { x1: "from", x2: "until", y: "name", fill: (d) => shade(d.rank, most), insetRight: -0.3,
      title: (d) => `${d.name}: rank ${short(d.rank)}, from step ${d.step}` })],
  }) };
}

/** The final rank pattern: layers down, module types across, a number in every cell. */
function rankGrid(records, most) {
  const cells = page.modules.map((module) => ({
    kind: module.kind, layer: module.layer === null ? "–" : `L${module.layer}`, label: module.label,
    seeds: nums(records.map((record) => record.ranks[module.path] ?? null)) }))
    .map((c) => ({ ...c, rank: mean(c.seeds) })).filter((c) => c.rank !== null);
  const layers = unique(cells.map((c) => c.layer));
  const kinds = page.kinds.filter((kind) => cells.some((c) => c.kind === kind));
  const height = 30 + 25 * layers.length;
  return { height, least: 40 + 52 * kinds.length, plots: () => ({
    height, marginLeft: 34, marginTop: 24, marginBottom: 4, marginRight: 4,
    x: { domain: kinds, axis: "top", label: null, tickSize: 0, padding: 0.03 },
    y: { domain: layers, label: null, tickSize: 0, padding: 0.06 },
    marks: [
      Plot.cell(cells, { x: "kind", y: "layer", fill: (d) => shade(d.rank, most), title: (d) => `${d.label}: rank ${short(d.rank)}${d.seeds.length > 1 ? `; seeds: ${d.seeds.join(", ")}` : ""}` }),
      Plot.text(cells, { x: "kind", y: "layer", text: (d) => short(d.rank, 1), fontWeight: 600, pointerEvents: "none",
        fill: (d) => onShade(d.rank, most) }),
    ],
  }) };
}

/** The colour key of ranks. */
const rankKey = (most) => h("p", { class: "legend" }, "rank", Array.from({ length: Math.min(8, most) + 1 }, (_, i) => {
  const rank = (i * most) / Math.min(8, most);
  return h("span", { class: "key" }, swatch(shade(rank, most)), short(rank, 1));
}));
function swatch(fill, kind = "square") {
  const size = kind === "square" ? 110 : 70;
  return Plot.plot({ width: 13, height: 13, margin: 0, axis: null, className: "swatch", style: { background: "none" },
    x: { domain: [0, 1] }, y: { domain: [0, 1] },
    marks: [Plot.dot([0], { x: 0.5, y: 0.5, symbol: kind, r: Math.sqrt(size / Math.PI), fill })] });
}

/** Accuracy and confidence by bin, above the number of examples in each. */
function reliability(bins, heading, name) {
  const n = bins.reduce((sum, bin) => sum + bin.count, 0);
  const title = (d) => `confidence ${d.confidence.toFixed(3)}, accuracy ${d.accuracy.toFixed(3)}, ${grouped(d.count)} examples`;
  // The bin of confidence exactly 1 has no width of its own: it is drawn as a sliver at the edge.
  const drawn = bins.map((bin) => ({ ...bin, low: Math.min(bin.low, bin.high - 0.012) }));
  const box = { x1: "low", x2: "high", inset: 0.5, title };
  const frame = { marginLeft: 56, marginRight: 14, x: { domain: [0, 1], ticks: 5, label: null } };
  return { height: 300, least: 200, plots: () => [
    { ...frame, height: 210, marginTop: 8, marginBottom: 4, x: { ...frame.x, axis: null },
      y: { domain: [0, 1], ticks: 4, label: "accuracy", ...CENTRED },
      marks: [
        gridY(),
        Plot.rectY(drawn, { ...box, y1: 0, y2: "accuracy", fill: colour(name), fillOpacity: 0.82 }),
        Plot.rectY(drawn, { ...box, y1: "accuracy", y2: "confidence", fill: "url(#gap)", stroke: "var(--ink)", strokeOpacity: 0.3 }),
        Plot.ruleY(drawn, { x1: "low", x2: "high", y: "confidence", stroke: "var(--ink)", strokeWidth: 1.4 }),
        Plot.line([[0, 0], [1, 1]], { stroke: "var(--soft)", strokeDasharray: "4 4" }),
        Plot.ruleY([0], { stroke: "var(--soft)" }),
        Plot.text([heading], { frameAnchor: "top-left", dx: 6, dy: 5, fontWeight: 650 }),
        Plot.text([`n = ${grouped(n)}`], { frameAnchor: "top-left", dx: 6, dy: 20, fill: "var(--soft)" }),
      ] },
    { ...frame, height: 90, marginTop: 8, marginBottom: 36,
      x: { ...frame.x, label: "confidence", ...CENTRED },
      y: { ticks: 2, label: "count", ...CENTRED, tickFormat: "s" },
      marks: [Plot.rectY(drawn, { ...box, y: "count", fill: colour(name), fillOpacity: 0.82 }), Plot.ruleY([0], { stroke: "var(--soft)" })] },
  ] };
}

/** Measures of a held-out loss, as `LossMeasure` names them. */
const HELD_OUT = { best_temperature: "loss at its best temperature (nats per row)", tokens: "loss (nats per token)",
  squared_error: "squared error over the labels' variance", constant_labels: "squared error" };

/** Held-out loss over the total rank of the sizes that a search tried, the margin, and the size that was kept. */
function rankSearch({ points, chosen, margin, measure, refined }, name) {
  const signed = (x) => `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(4)}`;
  const title = (d) => `rank ${d.total_rank}: loss ${d.loss.toFixed(4)}, less the whole model's ${signed(d.difference)}, ` +
    `bound of the test ${signed(d.upper)}`;
  const sizes = [...points].sort((a, b) => a.total_rank - b.total_rank);
  const bound = (d) => d.loss - d.difference + d.upper;
  const at = { x: "total_rank", y: "loss" };
  return { height: 250, plots: () => ({
    height: 250, marginLeft: 56, marginRight: 14, marginBottom: 40,
    x: { label: "sum of ranks", zero: true, ...CENTRED },
    y: { label: `held-out ${HELD_OUT[measure]}`, nice: true, ...CENTRED },
    marks: [
      gridY(),
      Plot.ruleY([points[0].loss + margin], { stroke: "var(--soft)", strokeDasharray: "4 4" }),
      Plot.ruleX(sizes, { x: "total_rank", y1: "loss", y2: bound, stroke: "var(--soft)" }),
      Plot.line(sizes, { ...at, stroke: colour(name), strokeWidth: 1.6 }),
      Plot.dot(sizes, { ...at, r: 3.2, fill: colour(name), title }),
      Plot.dot(refined ? [refined] : [], { ...at, r: 3.2, fill: "var(--card)", stroke: colour(name), title }),
      Plot.dot([points[chosen]], { ...at, r: 7, stroke: "var(--ink)", strokeWidth: 1.8, title }),
    ],
  }) };
}

/** One small panel per module: its components in order, the largest gap and the threshold. */
function statisticTrellis(record, name) {
  const parts = [];
  for (const module of page.modules) {
    const values = [["present", false], ["removed", true]].flatMap(([list, removed]) =>
      nums(record[list][module.path] ?? []).map((value) => ({ value, removed })));
    if (!(module.path in record.present || module.path in record.removed)) continue;
    values.sort((a, b) => a.value - b.value);
    const place = { kind: module.kind, layer: module.layer === null ? "–" : `L${module.layer}` };
    parts.push({ ...place, module, gap: largestGap(values.map((v) => v.value)),
      points: values.map((v, i) => ({ ...v, ...place, index: i, module })) });
  }
  const points = parts.flatMap((part) => part.points);
  if (!points.length) return null;
  const kinds = page.kinds.filter((kind) => parts.some((part) => part.kind === kind));
  const layers = unique(parts.map((part) => part.layer));
  const longest = Math.max(...parts.map((part) => part.points.length));
  const height = 62 + 86 * layers.length;
  const gaps = parts.filter((part) => part.gap);
  const facet = { fx: "kind", fy: "layer" };
  return { height, least: 60 + 112 * kinds.length, plots: () => ({
    height, marginLeft: 44, marginRight: 34, marginTop: 22, marginBottom: 36,
    fx: { domain: kinds, label: null, padding: 0.06 }, fy: { domain: layers, label: null, padding: 0.1, axis: "right" },
    x: { domain: [-0.7, longest - 0.3], axis: null },
    y: { nice: true, ticks: 3, label: null, domain: d3.extent([...points.map((p) => p.value), ...nums([record.threshold])]) },
    marks: [
      Plot.frame({ stroke: "var(--rule)", fill: "var(--card)" }),
      Plot.axisY({ ticks: 3, label: null, tickSize: 3 }),
      Plot.rect(gaps, { ...facet, x1: -0.7, x2: longest - 0.3, y1: (d) => d.gap[0], y2: (d) => d.gap[1], fill: "var(--c5)",
        fillOpacity: 0.2, title: (d) => `${d.module.label}: largest gap ${(d.gap[1] - d.gap[0]).toFixed(2)}, ${d.gap.map((x) => x.toFixed(2)).join(" to ")}` }),
      num(record.threshold) === null ? null : Plot.ruleY([record.threshold], { strokeDasharray: "4 3", strokeOpacity: 0.75 }),
      Plot.dot(points, { ...facet, x: "index", y: "value", r: 3.2, stroke: colour(name), strokeWidth: 1.4,
        fill: (d) => (d.removed ? "var(--card)" : colour(name)),
        title: (d) => `${d.module.label}: ${record.name} ${d.value.toFixed(3)}${d.removed ? ", removed" : ""}` }),
    ],
  }) };
}

/** Names beside marks, each in the first of several places where it touches nothing else. */
function markNames(points, x, y) {
  const places = [[9, 0, "start"], [-9, 0, "end"], [0, -13, "middle"], [0, 14, "middle"], [8, -11, "start"], [8, 12, "start"],
    [-8, -11, "end"], [-8, 12, "end"], [0, -26, "middle"], [0, 27, "middle"], [9, -24, "start"], [9, 25, "start"]];
  const boxOf = (px, py, [dx, dy, anchor], length) => {
    const w = 6.9 * length;
    const left = px + dx - (anchor === "end" ? w : anchor === "middle" ? w / 2 : 0);
    return [left, py + dy - 7, left + w, py + dy + 7];
  };
  const hits = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
  const placed = (anchor) => Plot.text(points, Plot.initializer(
    { x, y, text: "method", fill: (d) => colour(d.method), textAnchor: anchor },
    (data, facets, { x: X, y: Y }, scales, size) => {
      const [xs, ys] = [Array.from(X.value, scales.x), Array.from(Y.value, scales.y)];
      const taken = xs.map((px, i) => [px - 5, ys[i] - 5, px + 5, ys[i] + 5]);
      const found = xs.map((px, i) => {
        const free = places.find((place) => {
          const box = boxOf(px, ys[i], place, data[i].method.length);
          return box[0] > size.marginLeft && box[2] < size.width && box[1] > 0 &&
            box[3] < size.height - size.marginBottom && !taken.some((other, j) => j !== i && hits(box, other));
        }) ?? places[0];
        taken.push(boxOf(px, ys[i], free, data[i].method.length));
        return free;
      });
      const index = facets.map((facet) => facet.filter((i) => found[i][2] === anchor));
      return { data, facets: index, channels: { x: { value: xs.map((v, i) => v + found[i][0]) }, y: { value: ys.map((v, i) => v + found[i][1]) } } };
    }));
  return ["start", "middle", "end"].map(placed);
}
