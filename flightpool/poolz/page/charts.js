// The charts: lines over time, with what they show said in words beside them.

const SVG = "http://www.w3.org/2000/svg";

function svgNode(name, attributes) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  return node;
}

// path is the line through values, the latest at the right, and gaps where there are none.
function path(values, samples, top, close) {
  let d = "", drawn = false, x0 = 0;
  values.forEach((value, i) => {
    if (value === null) { drawn = false; return; }
    const x = 100 - (values.length - 1 - i) * 100 / Math.max(1, samples - 1);
    const y = 40 - value * 38 / top;
    if (!drawn) x0 = x;
    d += (drawn ? "L" : "M") + x.toFixed(2) + " " + y.toFixed(2);
    const last = i === values.length - 1 || values[i + 1] === null;
    if (last && !drawn && !close) d += "h.4"; // a value between two gaps is a dot
    if (last && close) d += "L" + x.toFixed(2) + " 40L" + x0.toFixed(2) + " 40Z";
    drawn = true;
  });
  return d;
}

function highest(lists) {
  let top = 0;
  for (const values of lists) for (const value of values) if (value !== null && value > top) top = value;
  return top;
}

const CHARTS = [
  { title: "Connections", lines: [["in_use", "in use"], ["idle", "idle"]], format: whole },
  { title: "Callers who wait", lines: [["waiting", "waiting"]], format: whole },
  { title: "Wait for a connection", lines: [["wait_p99", "99 %"], ["wait_p50", "median"]], format: milliseconds, sparse: true },
  { title: "Calls", lines: [["calls", "calls"], ["failures", "failures"]], format: whole, counted: true },
  { title: "Opens", lines: [["opens", "opens"], ["open_failures", "failures"]], format: whole, counted: true },
  { title: "Closes, cancels", lines: [["closed", "closes"], ["cancels", "cancels"]], format: whole, counted: true },
];

// makeCharts makes the figures once; what they show is changed in place.
function makeCharts(parent) {
  return CHARTS.map(chart => {
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    const title = document.createElement("b");
    title.textContent = chart.title;
    caption.append(title);
    const outputs = chart.lines.map(([, label], i) => {
      const key = document.createElement("span");
      key.className = i ? "key second" : "key";
      const output = document.createElement("output");
      output.setAttribute("aria-live", "off");
      key.append(label + " ", output);
      caption.append(key);
      return output;
    });
    const svg = svgNode("svg", { viewBox: "0 0 100 42", preserveAspectRatio: "none", role: "img" });
    const area = svgNode("path", { class: "area" });
    const paths = chart.lines.map((_, i) => svgNode("path", { class: i ? "second-line" : "first-line" }));
    svg.append(svgNode("line", { class: "base", x1: 0, x2: 100, y1: 40, y2: 40 }), area, ...paths.slice().reverse());
    const axis = document.createElement("div");
    axis.className = "axis";
    axis.setAttribute("aria-hidden", "true");
    const ends = ["", "", "now"].map(text => {
      const end = document.createElement("span");
      end.textContent = text;
      axis.append(end);
      return end;
    });
    figure.append(caption, svg, axis);
    parent.append(figure);
    return { chart, figure, title, outputs, svg, area, paths, ends };
  });
}

function drawChart(view, details, range) {
  const { chart } = view;
  const lists = chart.lines.map(([column]) => details.history[column] || []);
  const top = highest(lists);
  const unit = chart.counted ? (details.step > 1 ? " per " + details.step + " s" : " per second") : "";
  view.title.textContent = chart.title + unit;
  const words = chart.lines.map(([, label], i) => {
    const now = lists[i].length ? lists[i][lists[i].length - 1] : null;
    view.outputs[i].textContent = now === null ? "–" : chart.format(now);
    view.paths[i].setAttribute("d", path(lists[i], details.samples, top || 1, false));
    return label + ": now " + (now === null ? "none" : chart.format(now)) + ", at most " + chart.format(highest([lists[i]]));
  });
  view.area.setAttribute("d", chart.sparse ? "" : path(lists[0], details.samples, top || 1, true));
  view.svg.setAttribute("aria-label", chart.title + unit + ", last " + (range === "1h" ? "hour" : "5 minutes") + ". " + words.join("; ") + ".");
  view.ends[0].textContent = range === "1h" ? "1 h ago" : "5 min ago";
  view.ends[1].textContent = "top " + chart.format(top);
}

// makeSpark is a small line of the last minute.
function makeSpark() {
  const svg = svgNode("svg", { class: "spark", viewBox: "0 0 100 42", preserveAspectRatio: "none", role: "img" });
  svg.append(svgNode("path", { class: "area" }), svgNode("path", { class: "first-line" }));
  return svg;
}

function drawSpark(svg, values, max) {
  const top = Math.max(max, highest([values]), 1);
  svg.children[0].setAttribute("d", path(values, 60, top, true));
  svg.children[1].setAttribute("d", path(values, 60, top, false));
  svg.setAttribute("aria-label", "at most " + highest([values]) + " of " + max);
}
