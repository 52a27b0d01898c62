// The page of `ingot serve`: the list of runs, the curves of the chosen ones, and the other panels.
"use strict";
(function () {
  const {element, formatNumber, formatTime, formatBytes, PALETTE} = IngotChart;
  const byId = (id) => document.getElementById(id);
  const kMostChosen = 20;

  // The charts. keys: [key, name, style]; a chart is shown if a chosen run has one of them.
  const kCharts = [
    {id: "loss", title: "Loss", unit: "nats per token", keys: [["loss", "train", "smooth"], ["val_loss", "validation", "points"]], wide: true},
    {id: "lr", title: "Learning rate", keys: [["lr", "", "line"]]},
    {id: "speed", title: "Speed", unit: "tokens per second", keys: [["tokens_per_s", "", "smooth"]]},
    {id: "mfu", title: "MFU", unit: "fraction of the measured peak", keys: [["mfu", "", "smooth"]]},
    {id: "norm", title: "Gradient norm", unit: "before clipping", keys: [["grad_norm", "", "smooth"]], logY: true},
    {id: "memory", title: "Memory", unit: "resident", keys: [["rss_bytes", "", "line"]], format: formatBytes},
    {id: "top1", title: "Top-1", unit: "fraction of tokens", keys: [["top1", "train", "smooth"], ["val_top1", "validation", "points"]]},
    {id: "bpb", title: "Validation", unit: "bits per byte", keys: [["val_bits_per_byte", "", "points"]]},
    {id: "step", title: "Time of a step", unit: "milliseconds", keys: [["step_ms", "", "smooth"]]},
    {id: "phases", title: "Phases of a step", unit: "milliseconds", one: true,
      keys: [["ms_forward", "forward", "smooth"], ["ms_backward", "backward", "smooth"], ["ms_optimizer", "optimizer", "smooth"],
        ["loader_wait_ms", "waiting for data", "smooth"]]},
  ];
  const kNotDrawn = /^(tokens|train_time_s|step_tokens|sample|samples|val_tokens|bytes_.*)$/;

  function stored(key, otherwise) {
    try { return localStorage.getItem("ingot." + key) ?? otherwise; } catch { return otherwise; }
  }
  function remember(key, value) {
    try { localStorage.setItem("ingot." + key, value); } catch { /* private windows have no storage */ }
  }

  const page = {
    chosen: [], tab: "charts", charts: new Map(), range: null, details: new Map(), isOpen: false, hasChosen: false,
    // Hues at the golden angle follow the palette, so that no two runs have one colour.
    color: (run) => PALETTE[run] || `hsl(${(run * 137.508 % 360).toFixed(1)} 65% ${[45, 60, 35][run % 3]}%)`,
    isWanted: (run) => run.name.toLowerCase().includes(byId("filter").value.trim().toLowerCase()),
    run: (id) => page.store.runs.find((run) => run.id === id),
    name: (id) => (page.run(id) || {name: "run " + id}).name.replace(/^runs\//, ""),
  };

  const kinds = {running: "good", completed: "good", died: "bad", failed: "bad", gone: "bad", unreadable: "bad"};
  function stateText(run) {
    const made = element("span", "state", run.status);
    made.dataset.kind = kinds[run.status] || "wait";
    made.title = [run.remark, run.error].filter(Boolean).join("; ");
    return made;
  }
  function age(run) { return run.last_sign === null ? "" : formatTime(Math.max(0, Date.now() / 1000 - run.last_sign)) + " ago"; }

  function choose(ids) {
    page.chosen = ids.slice(0, kMostChosen);
    page.hasChosen = true;
    page.range = null;
    for (const chart of page.charts.values()) { chart.range = null; chart.showState(); }
    page.details.clear();
    location.replace("#" + new URLSearchParams({runs: page.chosen.join(","), tab: page.tab}));
    page.store.connect(page.chosen);
    showRuns();
    showSummary();
    showPanel();
  }

  const rows = new Map();
  function runRow(run) {
    const row = element("div", "run"), box = element("input"), name = element("button", "run-name");
    row.setAttribute("role", "listitem");
    row.style.setProperty("--swatch", page.color(run.id));
    box.type = "checkbox";
    name.type = "button";
    box.addEventListener("click", (event) => event.stopPropagation());
    box.addEventListener("change", () =>
      choose(box.checked ? [...page.chosen, run.id].sort((a, b) => a - b) : page.chosen.filter((id) => id !== run.id)));
    row.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey) return box.click();
      choose([run.id]);
      openMenu(false);
    });
    const loss = element("span", "run-loss"), note = element("div", "run-note"), bar = element("div", "run-bar"), fill = element("i");
    bar.append(fill);
    row.append(box, name, loss, note, bar);
    return {row, box, name, loss, note, bar, fill};
  }
  function showRuns() {
    const list = byId("runs"), left = byId("left-out");
    left.hidden = !page.store.leftOut;
    left.textContent = page.store.leftOut.toLocaleString("en") + " more runs are not shown.";
    byId("host").textContent = page.store.host;
    if (!page.store.runs.length && !list.querySelector(".empty")) list.append(element("p", "empty", "There are no runs yet."));
    if (page.store.runs.length && list.querySelector(".empty")) list.querySelector(".empty").remove();
    for (const run of page.store.runs) {
      if (!rows.has(run.id)) {
        rows.set(run.id, runRow(run));
        list.append(rows.get(run.id).row);
      }
      const r = rows.get(run.id), isOn = page.chosen.includes(run.id);
      r.row.hidden = !page.isWanted(run);
      r.row.dataset.on = String(isOn);
      r.row.dataset.run = run.id;
      r.box.checked = isOn;
      r.box.setAttribute("aria-label", "Plot " + run.name);
      r.name.textContent = page.name(run.id);
      r.name.title = run.name;
      const val = run.best_val_loss;
      r.loss.textContent = val !== null ? "val " + val.toFixed(4) : run.loss === null ? "" : "train " + run.loss.toFixed(4);
      r.loss.title = val !== null ? "best validation loss" : "training loss of the last step";
      r.note.replaceChildren(stateText(run), element("span", "", "step " + run.steps.toLocaleString("en")),
        element("span", "", run.eta_s !== null ? "about " + formatTime(run.eta_s) + " left" : age(run)));
      r.bar.hidden = run.total_steps === null || run.has_ended;
      r.fill.style.width = run.total_steps ? Math.min(100, 100 * run.steps / run.total_steps) + "%" : "0";
    }
  }

  function showSummary() {
    const summary = byId("summary");
    summary.replaceChildren();
    document.title = page.chosen.length === 1 ? page.name(page.chosen[0]) + " – Ingot" : "Ingot";
    if (page.chosen.length !== 1) {
      summary.append(element("h2", "", page.chosen.length ? page.chosen.length + " runs" : "No run is chosen"));
      return;
    }
    const run = page.run(page.chosen[0]), list = element("dl");
    if (!run) return;
    const head = element("h2", "", page.name(run.id) + " ");
    head.append(stateText(run));
    const add = (name, text) => {
      if (!text) return;
      const pair = element("div");
      pair.append(element("dt", "", name), element("dd", "", text));
      list.append(pair);
    };
    const last = (key) => { const curve = page.store.curve(run.id, key); return curve && curve.last(); };
    add("step", run.steps.toLocaleString("en") + (run.total_steps ? " of " + run.total_steps.toLocaleString("en") : ""));
    add("training loss", run.loss === null ? "" : run.loss.toFixed(4));
    const val = last("val_loss"), speed = last("tokens_per_s"), tokens = last("tokens"), mfu = last("mfu");
    add("validation loss", val === undefined ? "" : val.toFixed(4));
    add("tokens", tokens === undefined ? "" : formatNumber(tokens, 3));
    add("tokens/s", speed === undefined ? "" : formatNumber(speed, 4));
    add("MFU", mfu === undefined ? "" : (100 * mfu).toFixed(1) + " %");
    add("time left", run.eta_s === null ? "" : "about " + formatTime(run.eta_s));
    add(run.has_ended ? "ended" : "last sign", age(run));
    summary.append(head, list);
    if (run.error) summary.append(element("p", "problem", run.error));
    if (run.incidents) summary.append(element("p", "problem", run.incidents));
    const fraction = page.store.fractions.get(run.id);
    if (fraction !== undefined && fraction < 0.999) summary.append(element("p", "hint", "reading metrics.jsonl: " + Math.round(100 * fraction) + " %"));
  }

  // Points of a curve along the chosen axis, from the closer look where there is one.
  function points(run, key) {
    const axis = byId("axis").value, detail = page.range && page.details.get(run);
    const curve = (detail && detail[key]) || page.store.curve(run, key);
    if (!curve) return null;
    const x = axis === "step" ? curve.x : curve.x.map((step) => page.store.along(run, axis, step));
    return {x, mean: curve.mean, low: curve.low || null, high: curve.high || null};
  }
  function chartSeries(chart) {
    const out = [], isMany = page.chosen.length > 1, weight = Number(byId("smooth").value), hasRaw = byId("raw").checked;
    for (const run of page.chosen)
      chart.keys.forEach(([key, label, style], index) => {
        const p = points(run, key);
        if (!p) return;
        const color = chart.one ? PALETTE[index % PALETTE.length] : page.color(run);
        const name = isMany ? page.name(run) + (label && chart.keys.length > 1 ? " · " + label : "") : label || chart.title;
        const isSmooth = style === "smooth" && weight > 0;
        if (isSmooth && hasRaw) out.push({name: "", of: name, color, x: p.x, y: p.mean, low: p.low, high: p.high, style: "faint"});
        out.push({name, color, x: p.x, y: isSmooth ? IngotStore.smoothed(p.mean, weight) : p.mean,
          low: isSmooth ? null : p.low, high: isSmooth ? null : p.high, style: style === "points" ? "points" : "line",
          dashed: style === "points"});
      });
    return out;
  }
  function marks(run) {
    const axis = byId("axis").value;
    return (page.store.events.get(run) || []).slice(-200).map(([step, name, reason]) =>
      ({x: page.store.along(run, axis, step), label: name + (reason ? ": " + reason : ""), color: "#e0457b"}));
  }
  // Every other key of the chosen runs, one chart each.
  function otherCharts() {
    const known = new Set(kCharts.flatMap((chart) => chart.keys.map(([key]) => key))), keys = new Set();
    for (const run of page.chosen) for (const key of page.store.keys(run)) if (!known.has(key) && !kNotDrawn.test(key)) keys.add(key);
    return [...keys].sort().slice(0, 200).map((key) => ({id: "key:" + key, title: key, keys: [[key, "", "smooth"]]}));
  }

  let isScheduled = false;
  function showCharts() {
    if (isScheduled) return;
    isScheduled = true;
    setTimeout(() => { isScheduled = false; drawCharts(); }, 60);
  }
  function drawCharts() {
    if (page.tab !== "charts") return;
    const area = byId("charts"), axis = byId("axis").value;
    const more = otherCharts(), wanted = [...kCharts, ...(page.isOpen ? more : [])];
    const formatX = axis === "time" ? formatTime : (v) => formatNumber(v, 6);
    let before = null;
    for (const spec of wanted) {
      const hasData = page.chosen.some((run) => spec.keys.some(([key]) => page.store.curve(run, key)));
      const isShown = (hasData || spec.id === "loss") && !(spec.one && page.chosen.length > 1);
      let chart = page.charts.get(spec.id);
      if (!isShown) {
        if (chart) { chart.remove(); page.charts.delete(spec.id); }
        continue;
      }
      if (!chart) {
        chart = new IngotChart(area, {title: spec.title, unit: spec.unit || "", group: "runs", logY: !!spec.logY, height: spec.wide ? 320 : 220,
          ...(spec.format ? {formatY: spec.format, formatTickY: spec.format} : {}), onRange: ranged});
        chart.root.dataset.chart = spec.id;
        if (spec.wide) chart.root.classList.add("wide");
        page.charts.set(spec.id, chart);
      }
      if (before && before.nextSibling !== chart.root) before.after(chart.root);
      before = chart.root;
      chart.options.xLabel = axis === "time" ? "time" : axis;
      chart.options.formatX = formatX;
      chart.options.logX = byId("logx").checked;
      if (spec.id === "loss") chart.marks = page.chosen.length === 1 ? marks(page.chosen[0]) : [];
      chart.setSeries(chartSeries(spec));
    }
    for (const [id, chart] of page.charts)
      if (!wanted.some((spec) => spec.id === id)) { chart.remove(); page.charts.delete(id); }
    let toggle = area.querySelector(".group");
    if (!toggle) {
      toggle = element("div", "group");
      const button = element("button", "more");
      button.type = "button";
      button.addEventListener("click", () => { page.isOpen = !page.isOpen; drawCharts(); });
      toggle.append(button);
      area.append(toggle);
    }
    toggle.hidden = !more.length;
    toggle.firstChild.textContent = page.isOpen ? "fewer curves" : more.length + " more curves";
    const first = page.isOpen && more.length ? page.charts.get(more[0].id) : null;
    if (first) first.root.before(toggle); else area.append(toggle);
  }

  // Fetches a closer look at the shown range of long runs, where a point stands for many steps.
  let rangeTimer = 0;
  function ranged(range) {
    page.range = range;
    byId("reset").hidden = !range;
    clearTimeout(rangeTimer);
    if (!range) { page.details.clear(); showCharts(); return; }
    rangeTimer = setTimeout(async () => {
      const axis = byId("axis").value;
      for (const run of page.chosen) {
        const curve = page.store.curve(run, "loss");
        if (!curve || !curve.low) continue;
        const from = page.store.stepAt(run, axis, range[0]), to = page.store.stepAt(run, axis, range[1]);
        const answer = await fetch("api/range?run=" + run + "&from=" + Math.floor(from) + "&to=" + Math.ceil(to));
        if (answer.ok && page.range === range) { page.details.set(run, await answer.json()); showCharts(); }
      }
    }, 200);
  }

  function showPanel() {
    for (const panel of document.querySelectorAll(".panel")) panel.hidden = panel.dataset.panel !== page.tab;
    for (const tab of document.querySelectorAll("[data-tab]")) tab.setAttribute("aria-selected", String(tab.dataset.tab === page.tab));
    if (page.tab === "charts") return showCharts();
    IngotPanels[page.tab](document.querySelector(`[data-panel=${page.tab}]`), page).catch((problem) => console.warn(problem));
  }
  function openMenu(isOpen) {
    byId("side").dataset.open = String(isOpen);
    byId("menu").setAttribute("aria-expanded", String(isOpen));
  }
  function showLive(state, text) {
    byId("live").dataset.state = state;
    byId("live").textContent = text;
  }

  // Which run a page without a choice shows: the one that runs, otherwise the one with the newest sign of life.
  function firstChoice() {
    const hash = new URLSearchParams(location.hash.slice(1));
    const ids = (hash.get("runs") || "").split(",").filter(Boolean).map(Number).filter((id) => page.run(id));
    if (document.querySelector(`[data-tab="${CSS.escape(hash.get("tab") || "")}"]`)) page.tab = hash.get("tab");
    if (ids.length) return ids;
    const order = page.store.runs.slice().sort((a, b) =>
      (b.status === "running") - (a.status === "running") || (b.last_sign || 0) - (a.last_sign || 0));
    return order.length ? [order[0].id] : [];
  }

  let paramsTimer = 0;
  function changed(name, run) {
    if (name === "lost") return showLive("lost", "no connection");
    showLive("live", "live");
    if (name === "runs") {
      if (!page.hasChosen && page.store.runs.length) choose(firstChoice());
      showRuns();
      showSummary();
      if (page.tab === "table") showPanel();
      if (page.tab === "params" && Date.now() - paramsTimer > 10000 && page.chosen.some((id) => page.run(id) && !page.run(id).has_ended)) {
        paramsTimer = Date.now();
        showPanel();
      }
      return;
    }
    if (!page.chosen.includes(run)) return;
    if (name === "samples") { if (page.tab === "samples") showPanel(); return; }
    if (name === "snapshot") page.details.delete(run);
    showSummary();
    if (page.tab === "charts") showCharts();
    if (page.tab === "events") showPanel();
  }

  function setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    for (const chart of page.charts.values()) chart.draw();
  }

  function start() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    setTheme(stored("theme", "") || (dark.matches ? "dark" : "light"));
    dark.addEventListener("change", () => { if (!stored("theme", "")) setTheme(dark.matches ? "dark" : "light"); });
    byId("theme").addEventListener("click", () => {
      const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      remember("theme", theme);
      setTheme(theme);
    });
    byId("smooth").value = stored("smooth", "0.8");
    byId("smoothed").textContent = Number(byId("smooth").value).toFixed(2);
    byId("axis").value = stored("axis", "step") || "step";
    byId("smooth").addEventListener("input", () => {
      byId("smoothed").textContent = Number(byId("smooth").value).toFixed(2);
      remember("smooth", byId("smooth").value);
      showCharts();
    });
    const anew = () => {
      page.details.clear();
      if (page.charts.size) [...page.charts.values()][0].setRange(null);
      showCharts();
    };
    byId("axis").addEventListener("change", () => { remember("axis", byId("axis").value); anew(); });
    byId("logx").addEventListener("change", anew);
    byId("raw").addEventListener("change", showCharts);
    byId("reset").addEventListener("click", () => { if (page.charts.size) [...page.charts.values()][0].setRange(null); });
    byId("filter").addEventListener("input", () => { showRuns(); if (page.tab === "table") showPanel(); });
    byId("menu").addEventListener("click", () => openMenu(byId("side").dataset.open !== "true"));
    for (const tab of document.querySelectorAll("[data-tab]"))
      tab.addEventListener("click", () => {
        page.tab = tab.dataset.tab;
        location.replace("#" + new URLSearchParams({runs: page.chosen.join(","), tab: page.tab}));
        showPanel();
      });
    page.store = new IngotStore(changed);
    page.store.connect([]);
    setInterval(() => { if (page.store.runs.length) { showRuns(); showSummary(); } }, 5000);
  }
  Object.assign(page, {choose, stateText, age});
  window.ingotPage = page;
  start();
})();
