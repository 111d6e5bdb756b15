"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dialog = document.getElementById("story");
  const body = document.getElementById("story-body");
  const root = document.documentElement;
  const SVG = "http://www.w3.org/2000/svg";
  const GLYPHS = ["", "\u25c7", "\u25c6"];
  const STATUS = ["within", "possible", "sure"];

  // Names reach the page as text only: no markup is ever made from data.
  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    for (const child of children) element.append(child);
    return element;
  }
  function draw(tag, attributes, text) {
    const element = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  function plain(value, digits = 3) {
    return value === null ? "\u2013" : value.toFixed(digits).replace("-", "\u2212");
  }
  function signed(value, digits = 3) {
    const text = plain(value, digits);
    return value > 0 && Number(value.toFixed(digits)) !== 0 ? "+" + text : text;
  }
  function shade(moment, scale) {
    const ratio = scale > 0 ? Math.abs(moment) / scale : moment ? 4.5 : 0;
    const step = [0.5, 1, 2, 4].filter((limit) => ratio > limit).length;
    return step ? (moment < 0 ? "o" : "u") + step : "z";
  }
  function chip(entry) {
    const status = STATUS[entry[6]];
    const glyph = GLYPHS[entry[6]];
    const text = (glyph ? glyph + " " : "") + signed(entry[2]);
    return make("span", { class: `chip s-${shade(entry[2], entry[5])} ${status}` }, text);
  }
  function bounds(entry) {
    if (entry[3] === null) return "";
    const ends = entry[2] < 0 ? [-entry[4], -entry[3]] : [entry[3], entry[4]];
    return `[${ends.map((end) => signed(end || 0)).join(", ")}]`;
  }
  function whom(index) {
    const name = data.subgroups[index];
    return name === "all" ? "everyone" : name;
  }

  function table(caption, columns, rows) {
    const head = make("tr");
    for (const [name, kind] of columns) head.append(make("th", { scope: "col", class: kind }, name));
    const content = make("tbody");
    for (const row of rows) {
      const line = make("tr");
      row.forEach((cell, i) => {
        const tag = i === 0 ? "th" : "td";
        const attributes = i === 0 ? { scope: "row" } : { class: columns[i][1] };
        line.append(make(tag, attributes, cell));
      });
      content.append(line);
    }
    const result = make("table", {}, make("caption", {}, caption), make("thead", {}, head), content);
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, result);
  }

  function windowsChart(history) {
    const width = 560, height = 190, left = 46, right = 550, top = 10, bottom = 160;
    const known = history.map((entry, j) => [entry, j]).filter(([entry]) => entry);
    let reach = 1e-6;
    for (const [e] of known) reach = Math.max(reach, e[4] === null ? Math.abs(e[2]) : e[4], e[5]);
    const x = (j) => left + ((j + 0.5) / history.length) * (right - left);
    const y = (v) => (top + bottom) / 2 - (v / reach) * ((bottom - top) / 2);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
    const latest = known[known.length - 1][0];
    svg.setAttribute("aria-label", `Moment in ${known.length} windows, the latest ${signed(latest[2])}. The table below has all numbers.`);
    for (const value of [-reach, 0, reach]) {
      svg.append(draw("line", { class: value ? "m-grid" : "m-zero", x1: left, x2: right, y1: y(value), y2: y(value) }));
      svg.append(draw("text", { class: "m-note", x: left - 6, y: y(value) + 4, "text-anchor": "end" }, value ? signed(value, reach < 0.1 ? 3 : 2) : "0"));
    }
    if (data.tolerance !== null) {
      for (const value of [-data.tolerance, data.tolerance]) {
        svg.append(draw("line", { class: "m-limit", x1: left, x2: right, y1: y(value), y2: y(value) }));
      }
    }
    const step = Math.ceil((history.length * 46) / (right - left));
    history.forEach((entry, j) => {
      if (j % step === 0) svg.append(draw("text", { class: "m-note", x: x(j), y: height - 8, "text-anchor": "middle" }, data.windows[j].tick));
      if (!entry) return;
      const sign = entry[2] < 0 ? -1 : 1;
      if (entry[3] !== null) {
        svg.append(draw("line", { class: "m-whisker", x1: x(j), x2: x(j), y1: y(sign * entry[3]), y2: y(sign * entry[4]) }));
      }
      const size = entry[6] ? 5 : 3.5;
      svg.append(draw("rect", { class: entry[6] === 2 ? "m-critical" : "m-quiet-dot", x: x(j) - size, y: y(entry[2]) - size, width: 2 * size, height: 2 * size, rx: entry[6] ? 1 : size }));
    });
    return svg;
  }

  function link(index) {
    const name = make("bdi", {}, data.nodes[index].name);
    return make("button", { type: "button", class: "link", "data-node": String(index) }, name);
  }
  function between(items, mark) {
    return items.flatMap((item, i) => (i ? [mark, item] : [item]));
  }

  function shares(found) {
    const columns = [["Child", ""]];
    for (const key of ["reference", "predicted", "observed"]) {
      if (found[key]) columns.push([key === "reference" ? "predicted before" : key, "num"]);
    }
    const rows = found.children.map((child, i) => {
      const row = [make("bdi", {}, child)];
      for (const key of ["reference", "predicted", "observed"]) if (found[key]) row.push(plain(found[key][i]));
      return row;
    });
    return table("Share of each child", columns, rows);
  }

  function fill(index) {
    const node = data.nodes[index];
    const trail = make("p", { class: "trail" }, ...between(node.path.map(link), " \u203a "));
    const title = make("h2", { id: "story-title", tabindex: "-1" }, make("bdi", {}, node.name));
    body.replaceChildren(trail, title);
    if (node.children.length) {
      const names = between(node.children.map((child) => make("bdi", {}, child)), ", ");
      const more = node.more ? ` and ${node.more} more` : "";
      body.append(make("p", { class: "lead" }, "Chooses among ", ...names, more, "."));
    }
    for (const text of data.changes[index] || []) body.append(make("p", {}, text));
    const history = data.history[index];
    const latest = data.latest[index];
    if (!history && !latest) {
      body.append(make("p", {}, "No utility depends on this choice, or nothing was audited here."));
      return;
    }
    if (history && history.length > 1) {
      body.append(make("h3", {}, "Worst moment in each window"), windowsChart(history));
    }
    if (latest) {
      const rows = latest.rows.map((e) => [make("bdi", {}, whom(e[1])), make("bdi", {}, data.utilities[e[0]]), chip(e), bounds(e), e[7] === null ? "" : `${plain(e[7])} to ${plain(e[8])}`, String(e[9])]);
      const more = latest.more ? `; ${latest.more} smaller ones are left out` : "";
      body.append(make("h3", {}, "By subgroup and utility"));
      body.append(table(`${data.latestName}: marked first, then the largest${more}`, [["Subgroup", ""], ["Utility", ""], ["Moment", "num"], ["Bounds", "num"], ["Predicted utility", "num"], ["Rows", "num"]], rows));
    }
    if (data.frequencies[index]) {
      body.append(make("h3", {}, "Where predictions go"), shares(data.frequencies[index]));
    }
    if (history && history.length > 1) {
      const rows = history.map((e, j) => e && [data.windows[j].name, chip(e), bounds(e), make("bdi", {}, whom(e[1])), make("bdi", {}, data.utilities[e[0]])]).filter(Boolean).reverse();
      body.append(make("h3", {}, "All windows"), table("Newest first", [["Window", ""], ["Moment", "num"], ["Bounds", "num"], ["Subgroup", ""], ["Utility", ""]], rows));
    }
  }

  let opener = null;
  function open(index) {
    if (!data.nodes[index]) return;
    fill(index);
    for (const mark of document.querySelectorAll(".node.chosen")) mark.classList.remove("chosen");
    for (const mark of document.querySelectorAll(`.node[data-node="${index}"]`)) mark.classList.add("chosen");
    if (!dialog.open) {
      opener = document.activeElement;
      dialog.showModal();
    }
    dialog.scrollTop = 0;
    document.getElementById("story-title").focus();
    remember(`#node-${index}`);
  }
  function remember(hash) {
    try {
      history.replaceState(null, "", hash || location.pathname + location.search);
    } catch { /* inside a sandboxed frame there is no address to change */ }
  }
  dialog.addEventListener("close", () => {
    remember("");
    if (opener && opener.focus) opener.focus();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  document.getElementById("story-close").addEventListener("click", () => dialog.close());
  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-node]");
    if (target) open(Number(target.dataset.node));
  });

  // The tree is one stop on the way of the Tab key; arrows move inside it.
  const items = [...document.querySelectorAll("svg[role=tree] .node")];
  function step(item, key) {
    const at = items.indexOf(item), level = Number(item.getAttribute("aria-level"));
    if (key === "ArrowDown") return items[at + 1];
    if (key === "ArrowUp") return items[at - 1];
    if (key === "Home") return items[0];
    if (key === "End") return items[items.length - 1];
    if (key === "ArrowRight") {
      const next = items[at + 1];
      return next && Number(next.getAttribute("aria-level")) > level ? next : undefined;
    }
    if (key === "ArrowLeft") {
      return items.slice(0, at).reverse().find((other) => Number(other.getAttribute("aria-level")) < level);
    }
    return undefined;
  }
  for (const item of items) {
    item.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        open(Number(item.dataset.node));
        return;
      }
      const next = step(item, event.key);
      if (!next) return;
      event.preventDefault();
      item.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
  }

  const find = document.getElementById("find");
  if (find) {
    const byName = new Map(data.nodes.map((node, index) => [node.name, index]));
    const tell = document.getElementById("find-result");
    find.addEventListener("change", () => {
      const wanted = find.value.trim();
      if (!wanted) return;
      const close = byName.get(wanted) ?? data.nodes.findIndex((node) => node.name.toLowerCase().includes(wanted.toLowerCase()));
      tell.textContent = close < 0 ? "No branch has this name." : "";
      if (close >= 0) open(close);
    });
  }

  const toggle = document.getElementById("theme");
  const themes = ["auto", "light", "dark"];
  function setTheme(name) {
    root.dataset.theme = name;
    toggle.textContent = `Theme: ${name}`;
    try {
      localStorage.setItem("huc-theme", name);
    } catch { /* a file may not remember */ }
  }
  toggle.addEventListener("click", () => setTheme(themes[(themes.indexOf(root.dataset.theme) + 1) % 3]));
  try {
    const kept = localStorage.getItem("huc-theme");
    if (themes.includes(kept)) setTheme(kept);
  } catch { /* see above */ }

  const asked = /^#node-(\d+)$/.exec(location.hash);
  if (asked) open(Number(asked[1]));
})();
