// The panels beside the charts: the table of runs, samples, parameters, configuration and events. Each is a function
// (panel, page) that fills the panel for the chosen runs; text from files is set by textContent.
"use strict";
(function () {
  const {element, formatNumber, PALETTE} = IngotChart;

  async function json(path) {
    const answer = await fetch(path);
    if (!answer.ok) throw new Error(answer.status + " " + path);
    return answer.json();
  }
  function heading(page, run, note) {
    const made = element("h3"), dot = element("i");
    dot.style.background = page.color(run);
    made.append(dot, element("span", "", page.name(run)));
    if (note) made.append(element("small", "", note));
    return made;
  }
  function empty(panel, text) { panel.replaceChildren(element("p", "empty", text)); }

  const kColumns = [["name", "run"], ["status", "status"], ["steps", "step"], ["best_val_loss", "best validation loss"],
    ["loss", "training loss of the last step"], ["last_sign", "last sign"]];
  const table = {order: "best_val_loss", isDown: false};
  // Sorts by a column; runs without a value come last.
  function sorted(runs, key, isDown) {
    const compare = (a, b) => typeof a === "string" ? a.localeCompare(b, "en", {numeric: true}) : a - b;
    return runs.slice().sort((a, b) => (a[key] === null) - (b[key] === null) || (isDown ? -1 : 1) * compare(a[key], b[key]) || a.id - b.id);
  }
  async function runs(panel, page) {
    const made = element("table"), head = element("tr"), body = element("tbody"), thead = element("thead");
    for (const [key, text] of kColumns) {
      const cell = element("th"), button = element("button", "sort", text + (table.order === key ? (table.isDown ? " ▾" : " ▴") : ""));
      cell.setAttribute("aria-sort", table.order !== key ? "none" : table.isDown ? "descending" : "ascending");
      button.type = "button";
      button.dataset.sort = key;
      button.addEventListener("click", () => {
        table.isDown = table.order === key && !table.isDown;
        table.order = key;
        runs(panel, page);
      });
      cell.append(button);
      head.append(cell);
    }
    for (const run of sorted(page.store.runs.filter(page.isWanted), table.order, table.isDown)) {
      const row = element("tr", "pick"), name = element("td"), dot = element("i", "dot"), state = element("td");
      dot.style.background = page.color(run.id);
      name.append(dot, page.name(run.id));
      state.append(page.stateText(run));
      const number = (value) => element("td", "", value === null ? "–" : value.toFixed(4));
      row.append(name, state, element("td", "", run.steps.toLocaleString("en")), number(run.best_val_loss), number(run.loss),
        element("td", "", page.age(run)));
      row.addEventListener("click", () => page.choose([run.id]));
      body.append(row);
    }
    thead.append(head);
    made.append(thead, body);
    const card = element("div", "card scroll");
    card.append(made);
    panel.replaceChildren(card);
  }

  const texts = new Map();  // "run/file" -> text of a sample
  let shownSamples = 12;
  async function samples(panel, page) {
    const all = [];
    for (const run of page.chosen)
      for (const file of page.store.samples.get(run) || []) all.push({run, file, step: parseInt(file.replace(/\D+/, ""), 10) || 0});
    if (!all.length) return empty(panel, "There are no samples yet. sample.every sets how often a run writes them.");
    all.sort((a, b) => b.step - a.step || a.run - b.run);
    const cards = document.createDocumentFragment();
    for (const {run, file, step} of all.slice(0, shownSamples)) {
      const key = run + "/" + file;
      if (!texts.has(key)) {
        const answer = await fetch("api/sample?run=" + run + "&file=" + encodeURIComponent(file));
        texts.set(key, answer.ok ? await answer.text() : "");
      }
      const card = element("article", "card");
      card.append(heading(page, run, "step " + step.toLocaleString("en")), element("pre", "", texts.get(key)));
      cards.append(card);
    }
    panel.replaceChildren(cards);
    if (all.length > shownSamples) {
      const more = element("button", "more", "older samples");
      more.addEventListener("click", () => { shownSamples += 20; samples(panel, page); });
      panel.append(more);
    }
  }

  const kQuantities = [["grad_norm", "gradient norm"], ["weight_norm", "weight norm"], ["update_ratio", "update / weight"],
    ["update_projection", "update along weight"]];
  const params = {quantity: "grad_norm", filter: "", picked: new Set(), chart: null, run: null, data: null, order: null};
  function sparkline(curve, color) {
    const canvas = element("canvas"), g = canvas.getContext("2d"), n = curve.x.length;
    canvas.width = 224;
    canvas.height = 48;
    const finite = curve.mean.filter(Number.isFinite), low = Math.min(...finite), high = Math.max(...finite);
    g.strokeStyle = color;
    g.lineWidth = 2.5;
    g.beginPath();
    curve.mean.forEach((y, i) => g.lineTo(4 + 216 * (n > 1 ? i / (n - 1) : 0.5), high > low ? 42 - 36 * (y - low) / (high - low) : 24));
    g.stroke();
    return canvas;
  }
  function fillParams(panel, page) {
    const prefix = params.quantity + "/", data = params.data;
    const names = Object.keys(data).filter((key) => key.startsWith(prefix)).map((key) => key.slice(prefix.length));
    if (![...params.picked].some((name) => names.includes(name)))
      params.picked = new Set([names[0], ...names.filter((n) => /down|output|proj/.test(n)), ...names.slice(-1)].slice(0, 8));
    params.chart.setOptions({title: kQuantities.find(([key]) => key === params.quantity)[1], unit: page.name(params.run)});
    let color = 0;
    params.chart.setSeries(names.filter((name) => params.picked.has(name)).map((name) => {
      const columns = data[prefix + name];
      return {name, color: PALETTE[color++ % PALETTE.length], x: columns.x, y: columns.mean, low: columns.low, high: columns.high, style: "line"};
    }));
    const body = panel.querySelector("tbody");
    body.replaceChildren();
    const last = (quantity, name) => {
      const columns = data[quantity + "/" + name];
      return columns ? columns.mean[columns.mean.length - 1] : NaN;
    };
    let rows = names.filter((name) => name.toLowerCase().includes(params.filter.toLowerCase()));
    if (params.order) rows = rows.slice().sort((a, b) => last(params.order, b) - last(params.order, a));
    for (const name of rows.slice(0, 600)) {
      const row = element("tr", "pick"), box = element("input");
      box.type = "checkbox";
      box.checked = params.picked.has(name);
      box.setAttribute("aria-label", "Show " + name);
      const cell = element("td"), line = element("td");
      cell.append(box, " " + name);
      line.append(sparkline(data[prefix + name], page.color(params.run)));
      row.append(cell, line);
      for (const [key] of kQuantities) row.append(element("td", "number", formatNumber(last(key, name), 3)));
      row.addEventListener("click", () => {
        if (!params.picked.delete(name)) params.picked.add(name);
        fillParams(panel, page);
      });
      body.append(row);
    }
  }
  async function parameters(panel, page) {
    const run = page.chosen[0];
    const data = run === undefined ? {} : await json("api/params?run=" + run);
    if (!Object.keys(data).length)
      return params.chart = null, empty(panel, "There are no norms of parameters yet. train.stats_every sets how often a run writes them.");
    params.run = run;
    params.data = data;
    if (!params.chart || !panel.contains(params.chart.root)) {
      panel.replaceChildren();
      const bar = element("div", "bar"), select = element("select"), filter = element("input");
      for (const [key, text] of kQuantities) select.append(new Option(text, key));
      select.value = params.quantity;
      select.setAttribute("aria-label", "Quantity");
      select.addEventListener("change", () => { params.quantity = select.value; fillParams(panel, page); });
      filter.type = "search";
      filter.placeholder = "filter parameters";
      filter.setAttribute("aria-label", "Filter parameters");
      filter.addEventListener("input", () => { params.filter = filter.value; fillParams(panel, page); });
      bar.append(select, filter);
      panel.append(bar);
      params.chart = new IngotChart(panel, {title: "", height: 300, group: "params", logY: true});
      const scroll = element("div", "scroll card"), table = element("table"), head = element("tr");
      head.append(element("th", "", "parameter"), element("th", "", "course"));
      for (const [key, text] of kQuantities) {
        const cell = element("th", "number", text);
        cell.title = "Sort by the newest value";
        cell.addEventListener("click", () => { params.order = params.order === key ? null : key; fillParams(panel, page); });
        head.append(cell);
      }
      const thead = element("thead");
      thead.append(head);
      table.append(thead, element("tbody"));
      scroll.append(table);
      scroll.style.marginTop = ".8rem";
      panel.append(scroll);
    }
    fillParams(panel, page);
  }

  const config = {filter: "", onlyDifferences: null};
  async function configuration(panel, page) {
    const runs = page.chosen.slice(0, 12), details = await Promise.all(runs.map((run) => json("api/run?run=" + run)));
    if (!runs.length) return empty(panel, "No run is chosen.");
    const isOnly = config.onlyDifferences ?? runs.length > 1;
    const bar = element("div", "bar"), filter = element("input"), label = element("label", "check"), box = element("input");
    filter.type = "search";
    filter.placeholder = "filter keys";
    filter.setAttribute("aria-label", "Filter keys");
    filter.value = config.filter;
    box.type = "checkbox";
    box.checked = isOnly;
    box.id = "differences";
    label.append(box, "differences only");
    bar.append(filter);
    if (runs.length > 1) bar.append(label);
    const card = element("div", "card scroll"), table = element("table"), head = element("tr"), body = element("tbody");
    head.append(element("th", "", "key"));
    for (const run of runs) {
      const cell = element("th", "value", page.name(run));
      cell.style.borderBottom = "2px solid " + page.color(run);
      head.append(cell);
    }
    const fill = () => {
      body.replaceChildren();
      const keys = [...new Set(details.flatMap((d) => Object.keys(d.config)))];
      for (const key of keys) {
        const values = details.map((d) => d.config[key] ?? ""), differs = new Set(values).size > 1;
        if ((runs.length > 1 && box.checked && !differs) || !key.includes(config.filter)) continue;
        const row = element("tr");
        row.dataset.differs = String(differs && runs.length > 1);
        row.append(element("td", "", key), ...values.map((value) => element("td", "value", value)));
        body.append(row);
      }
      if (!body.children.length) {
        const row = element("tr"), cell = element("td", "empty", config.filter ? "No key matches." : "The configurations are the same.");
        cell.colSpan = runs.length + 1;
        row.append(cell);
        body.append(row);
      }
    };
    filter.addEventListener("input", () => { config.filter = filter.value.trim(); fill(); });
    box.addEventListener("change", () => { config.onlyDifferences = box.checked; fill(); });
    fill();
    table.append(head, body);
    card.append(table);
    panel.replaceChildren(bar, card);
    runs.forEach((run, i) => {
      if (!details[i].record.length) return;
      const record = element("div", "card scroll"), rows = element("table");
      record.append(heading(page, run, "provenance"));
      for (const [name, value] of details[i].record) {
        const row = element("tr");
        row.append(element("th", "", name), element("td", "value", value));
        rows.append(row);
      }
      record.append(rows);
      panel.append(record);
    });
  }

  async function events(panel, page) {
    const cards = document.createDocumentFragment();
    for (const run of page.chosen) {
      const details = await json("api/run?run=" + run), told = page.store.events.get(run) || [];
      if (!details.incidents.length && !told.length) continue;
      const card = element("div", "card scroll"), table = element("table");
      card.append(heading(page, run));
      for (const [time, text] of details.incidents.slice().reverse()) {
        const row = element("tr");
        row.append(element("td", "", time.replace("T", " ").replace("Z", "")), element("td", "state", "incident"), element("td", "", text));
        row.children[1].dataset.kind = "bad";
        table.append(row);
      }
      for (const [step, name, reason] of told.slice(-300).reverse()) {
        const row = element("tr");
        row.append(element("td", "", "step " + step.toLocaleString("en")), element("td", "", name), element("td", "", reason));
        table.append(row);
      }
      card.append(table);
      cards.append(card);
    }
    if (!cards.children.length) return empty(panel, "Nothing has disturbed these runs: no incidents, no events of the guard.");
    panel.replaceChildren(cards);
  }

  window.IngotPanels = {table: runs, sorted, samples, params: parameters, config: configuration, events};
})();
