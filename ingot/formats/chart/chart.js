// Chart: an interactive line chart on a canvas, for the page of `ingot serve` and for report.html. It loads nothing
// and writes text with fillText and textContent only, so names from files cannot become markup.
//
//   const chart = new IngotChart(element, {title, unit, logY, group, xLabel, formatX});
//   chart.setSeries([{name, color, x, y, low, high, style, hidden}]);   // style: "line", "faint" or "points"
//
// Charts of one group zoom and pan together and share the cross hair. Drag selects a range, shift-drag and a
// horizontal wheel pan, a pinch or ctrl-wheel zooms, a double click shows everything again.
"use strict";
(function () {
  const PALETTE = ["#3b82f6", "#f2762e", "#12a37f", "#a05bd6", "#e0457b", "#0ea5b7", "#c08a00", "#7b8794"];
  const groups = new Map();

  function trimmed(text) {
    return text.includes(".") && !text.includes("e") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
  }
  function formatNumber(value, digits = 4) {
    if (!Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size === 0) return "0";
    const rounded = (number) => String(Number(number.toPrecision(digits)));  // 150, where toPrecision says 1.5e+2
    for (const [unit, suffix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]])
      if (size >= unit) return rounded(value / (suffix === "k" ? 1e3 : unit)) + suffix;
    if (size < 1e-3) return String(Number(value.toPrecision(digits)).toExponential());
    return rounded(value);
  }
  function formatTime(seconds) {
    if (!Number.isFinite(seconds)) return "–";
    const s = Math.round(Math.abs(seconds)), two = (n) => String(n).padStart(2, "0");
    if (Math.abs(seconds) < 10) return trimmed(Math.abs(seconds).toFixed(1)) + "s";
    if (s < 60) return s + "s";
    if (s < 3600) return Math.floor(s / 60) + "m" + two(s % 60) + "s";
    if (s < 86400) return Math.floor(s / 3600) + "h" + two(Math.floor(s / 60) % 60) + "m";
    return Math.floor(s / 86400) + "d" + two(Math.floor(s / 3600) % 24) + "h";
  }
  function formatBytes(bytes) {
    if (!Number.isFinite(bytes)) return "–";
    for (const [unit, suffix] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])
      if (Math.abs(bytes) >= unit) return Number((bytes / unit).toPrecision(3)) + " " + suffix;
    return bytes + " B";
  }

  // About `wanted` round values in [low, high].
  function ticks(low, high, wanted, isLog) {
    const out = [];
    if (isLog) {
      const decades = Math.log10(high / low);
      const factors = decades > 5 ? [1] : decades > 1.6 ? [1, 3] : decades > 0.7 ? [1, 2, 5] : null;
      if (factors) {
        const stride = Math.max(1, Math.ceil(decades / Math.max(wanted, 2)));
        for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); ++e)
          for (const f of factors)
            if (f * 10 ** e >= low && f * 10 ** e <= high && (stride === 1 || e % stride === 0)) out.push(f * 10 ** e);
        return out;
      }
    }
    const raw = (high - low) / Math.max(wanted, 1), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find((m) => m * power >= raw) * power;
    if (!(step > 0) || !Number.isFinite(step)) return out;
    for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9 && out.length < 50; ++i)
      out.push(Math.abs(i * step) < step * 1e-9 ? 0 : i * step);
    return out;
  }
  // Digits that tell neighbouring ticks apart.
  function tickFormat(values) {
    for (let digits = 2; digits < 9; ++digits) {
      const texts = values.map((v) => formatNumber(v, digits));
      if (new Set(texts).size === texts.length && values.every((v, i) =>
        Math.abs(parseFloat(texts[i]) * ({T: 1e12, G: 1e9, M: 1e6, k: 1e3}[texts[i].slice(-1)] || 1) - v) <= Math.abs(v) * 1e-6 + 1e-300))
        return (v) => formatNumber(v, digits);
    }
    return (v) => formatNumber(v, 5);
  }

  // The first index whose x is at least `value`; x is ascending.
  function lowerBound(x, value) {
    let low = 0, high = x.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (x[middle] < value) low = middle + 1; else high = middle;
    }
    return low;
  }

  function element(tag, className, text) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  class Chart {
    constructor(root, options) {
      this.options = {title: "", unit: "", height: 240, group: "", logY: false, logX: false, xLabel: "step",
        formatX: (v) => formatNumber(v, 6), formatY: (v) => formatNumber(v, 5), ...options};
      this.series = [];
      this.marks = [];
      this.range = null;      // [low, high] of x while zoomed
      this.cursor = null;     // x under the pointer
      this.pending = 0;
      this.hiddenNames = new Set();
      this.isVisible = true;
      this.build(root);
      const group = this.options.group;
      if (!groups.has(group)) groups.set(group, new Set());
      this.group = groups.get(group);
      for (const other of this.group) { this.range = other.range; break; }
      this.group.add(this);
    }

    build(root) {
      const o = this.options;
      this.root = element("figure", "ic");
      const head = element("figcaption", "ic-head");
      this.title = element("span", "ic-title", o.title);
      this.unit = element("span", "ic-unit", o.unit);
      const tools = element("span", "ic-tools");
      const button = (name, label, text, act) => {
        const made = element("button", "ic-button", text);
        made.type = "button";
        made.title = label;
        made.setAttribute("aria-label", label + ": " + o.title);
        made.dataset.act = name;
        made.addEventListener("click", act);
        tools.append(made);
        return made;
      };
      button("in", "Zoom in", "+", () => this.zoomBy(0.5));
      button("out", "Zoom out", "−", () => this.zoomBy(2));
      this.resetButton = button("reset", "Show everything", "reset", () => this.setRange(null));
      this.logButton = button("log", "Logarithmic y axis", "log", () => this.setLogY(!this.options.logY));
      button("large", "Enlarge", "⤢", () => this.setLarge(!this.root.classList.contains("ic-large")));
      head.append(this.title, this.unit, tools);
      this.canvas = element("canvas", "ic-canvas");
      this.canvas.tabIndex = 0;
      this.canvas.setAttribute("role", "img");
      this.canvas.setAttribute("aria-label", o.title + ": chart; arrow keys pan, plus and minus zoom, 0 shows everything");
      this.area = element("div", "ic-area");
      this.area.style.height = o.height + "px";
      this.tip = element("div", "ic-tip");
      this.tip.hidden = true;
      this.area.append(this.canvas, this.tip);
      this.legend = element("div", "ic-legend");
      this.root.append(head, this.area, this.legend);
      root.append(this.root);
      this.listen();
      this.showState();
      new ResizeObserver(() => this.draw()).observe(this.area);
      if (window.IntersectionObserver)
        new IntersectionObserver((entries) => {
          this.isVisible = entries[entries.length - 1].isIntersecting;
          if (this.isVisible) this.draw();
        }, {rootMargin: "200px"}).observe(this.root);
    }

    remove() {
      this.group.delete(this);
      this.root.remove();
    }

    setSeries(series) {
      this.series = series.filter((s) => s.x.length > 0);
      this.fillLegend();
      this.draw();
    }
    setMarks(marks) { this.marks = marks; this.draw(); }
    setOptions(changes) { Object.assign(this.options, changes); this.showState(); this.draw(); }
    setLogY(isLog) { this.options.logY = isLog; this.showState(); this.draw(); }
    setLarge(isLarge) {
      this.root.classList.toggle("ic-large", isLarge);
      this.area.style.height = isLarge ? "min(70vh, 640px)" : this.options.height + "px";
      this.draw();
    }
    setRange(range) {
      for (const chart of this.group) {
        chart.range = range;
        chart.showState();
        chart.draw();
      }
      if (this.options.onRange) this.options.onRange(range);
    }
    setCursor(x) {
      for (const chart of this.group) {
        chart.cursor = x;
        chart.draw();
      }
    }
    showState() {
      this.resetButton.hidden = !this.range;
      this.logButton.setAttribute("aria-pressed", String(this.options.logY));
    }

    fillLegend() {
      const named = this.series.filter((s) => s.name);
      const key = named.map((s) => s.name + s.color).join("\n");
      if (key !== this.legendKey) {
        this.legendKey = key;
        this.legend.replaceChildren();
        this.values = [];
        for (const s of named.length > 1 && named.length <= 12 ? named : []) {
          const item = element("button", "ic-item");
          item.type = "button";
          item.title = "Show or hide";
          const swatch = element("i", s.style === "points" ? "ic-dot" : "ic-line");
          swatch.style.background = s.color;
          item.append(swatch, element("span", "", s.name));
          item.addEventListener("click", () => {
            if (!this.hiddenNames.delete(s.name)) this.hiddenNames.add(s.name);
            item.classList.toggle("ic-off", this.hiddenNames.has(s.name));
            this.draw();
          });
          this.legend.append(item);
        }
      }
    }
    shown() { return this.series.filter((s) => !this.hiddenNames.has(s.name) && !this.hiddenNames.has(s.of)); }

    draw() {
      if (this.pending || !this.isVisible) return;
      this.pending = requestAnimationFrame(() => {
        this.pending = 0;
        this.paint();
      });
    }

    // The range of x that is shown.
    extent() {
      if (this.range) return this.range;
      let low = Infinity, high = -Infinity;
      for (const s of this.shown())
        for (let i = 0; i < s.x.length; ++i) {
          const x = s.x[i];
          if (!Number.isFinite(x) || (this.options.logX && x <= 0)) continue;
          if (x < low) low = x;
          if (x > high) high = x;
        }
      if (low > high) return [0, 1];
      if (low === high) return this.options.logX ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
      return [low, high];
    }
    extentY(x0, x1) {
      const isLog = this.options.logY;
      let low = Infinity, high = -Infinity;
      const add = (y) => {
        if (!Number.isFinite(y) || (isLog && y <= 0)) return;
        if (y < low) low = y;
        if (y > high) high = y;
      };
      for (const s of this.shown()) {
        const begin = Math.max(0, lowerBound(s.x, x0) - 1), end = Math.min(s.x.length, lowerBound(s.x, x1) + 2);
        for (let i = begin; i < end; ++i) {
          if (s.x[i] < x0 || s.x[i] > x1) { if (s.style !== "faint") add(s.y[i]); continue; }
          add(s.low ? s.low[i] : s.y[i]);
          add(s.high ? s.high[i] : s.y[i]);
        }
      }
      if (low > high) return null;
      if (isLog) return low === high ? [low / 2, high * 2] : [low / 1.06, high * 1.06];
      const margin = low === high ? Math.abs(low) * 0.1 || 1 : (high - low) * 0.06;
      return [low >= 0 && low - margin < 0 ? 0 : low - margin, high + margin];
    }

    paint() {
      const width = this.area.clientWidth, height = this.area.clientHeight;
      if (width < 40 || height < 40) return;
      const ratio = window.devicePixelRatio || 1, canvas = this.canvas;
      if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
      }
      const g = canvas.getContext("2d"), style = getComputedStyle(this.root);
      const ink = style.getPropertyValue("--soft") || "#5c6570", line = style.getPropertyValue("--grid") || "#dfe3e8";
      g.setTransform(ratio, 0, 0, ratio, 0, 0);
      g.clearRect(0, 0, width, height);
      g.font = "11px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif";
      const isLog = this.options.logY, [x0, x1] = this.extent(), extent = this.extentY(x0, x1);
      g.fillStyle = ink;
      if (!extent) {
        g.textAlign = "center";
        g.fillText(this.series.length ? "no data in this range" : "no data yet", width / 2, height / 2);
        this.map = null;
        this.tip.hidden = true;
        return;
      }
      const [y0, y1] = extent;
      const yTicks = ticks(y0, y1, Math.max(2, Math.floor((height - 30) / 44)), isLog);
      const yText = this.options.formatTickY || tickFormat(yTicks);
      const left = Math.ceil(Math.max(30, ...yTicks.map((v) => g.measureText(yText(v)).width + 12)));
      const box = {left, right: width - 12, top: 8, bottom: height - 22};
      const scale = (v, a, b, p, q, log) => log ? p + (Math.log(v) - Math.log(a)) / (Math.log(b) - Math.log(a)) * (q - p)
        : p + (v - a) / (b - a) * (q - p);
      const X = (v) => scale(v, x0, x1, box.left, box.right, this.options.logX);
      const Y = (v) => scale(v, y0, y1, box.bottom, box.top, isLog);
      this.map = {X, Y, box, x0, x1, inverse: (px) => {
        const f = (px - box.left) / (box.right - box.left);
        return this.options.logX ? Math.exp(Math.log(x0) + f * (Math.log(x1) - Math.log(x0))) : x0 + f * (x1 - x0);
      }};
      g.lineWidth = 1;
      g.strokeStyle = line;
      g.textAlign = "right";
      g.textBaseline = "middle";
      for (const v of yTicks) {
        const y = Math.round(Y(v)) + 0.5;
        g.beginPath(); g.moveTo(box.left, y); g.lineTo(box.right, y); g.stroke();
        g.fillText(yText(v), box.left - 7, y);
      }
      g.textBaseline = "alphabetic";
      g.textAlign = "center";
      let lastEnd = -Infinity;
      const labelWidth = g.measureText(this.options.xLabel).width;
      for (const v of ticks(x0, x1, Math.max(2, Math.floor((box.right - box.left) / 90)), this.options.logX)) {
        const text = this.options.formatX(v), half = g.measureText(text).width / 2;
        const x = Math.min(Math.max(X(v), half), width - half);
        if (x - half < lastEnd + 10 || x + half > box.right - labelWidth - 8) continue;
        g.fillText(text, x, height - 6);
        lastEnd = x + half;
      }
      g.textAlign = "right";
      g.fillText(this.options.xLabel, box.right, height - 6);
      g.save();
      g.beginPath();
      g.rect(box.left, box.top - 4, box.right - box.left + 4, box.bottom - box.top + 8);
      g.clip();
      for (const mark of this.marks) {
        if (!(mark.x >= x0 && mark.x <= x1)) continue;
        g.strokeStyle = mark.color;
        g.globalAlpha = 0.55;
        g.setLineDash([3, 3]);
        g.beginPath(); g.moveTo(X(mark.x), box.top); g.lineTo(X(mark.x), box.bottom); g.stroke();
        g.setLineDash([]);
        g.globalAlpha = 1;
      }
      for (const s of this.shown()) this.paintSeries(g, s, x0, x1);
      g.restore();
      this.paintCursor(g, ink);
      if (this.drag) {
        g.fillStyle = style.getPropertyValue("--accent") || "#2563d8";
        g.globalAlpha = 0.15;
        g.fillRect(Math.min(this.drag.from, this.drag.to), box.top, Math.abs(this.drag.to - this.drag.from), box.bottom - box.top);
        g.globalAlpha = 1;
      }
    }

    // Draws the extremes of every pixel column, so that the work is bounded and no spike is lost.
    paintSeries(g, s, x0, x1) {
      const {X, Y, box} = this.map, isLog = this.options.logY;
      const begin = Math.max(0, lowerBound(s.x, x0) - 1), end = Math.min(s.x.length, lowerBound(s.x, x1) + 1);
      g.strokeStyle = g.fillStyle = s.color;
      g.lineWidth = s.style === "faint" ? 1 : 1.75;
      g.globalAlpha = s.style === "faint" ? 0.26 : 1;
      g.lineJoin = "round";
      if (s.dashed) g.setLineDash([5, 4]);
      g.beginPath();
      let isOpen = false, column = NaN, low = 0, high = 0, last = 0;
      const flush = () => {
        if (column !== column) return;
        if (!isOpen) g.moveTo(column, Y(last)); else g.lineTo(column, Y(low));
        if (high !== low) { g.lineTo(column, Y(low)); g.lineTo(column, Y(high)); }
        g.lineTo(column, Y(last));
        isOpen = true;
      };
      const isDense = end - begin > 2 * (box.right - box.left);
      for (let i = begin; i < end; ++i) {
        const y = s.y[i];
        if (!Number.isFinite(y) || (isLog && y <= 0) || (this.options.logX && s.x[i] <= 0)) {
          flush();
          column = NaN;
          isOpen = false;
          continue;
        }
        const px = isDense ? Math.round(X(s.x[i])) : X(s.x[i]);
        const a = s.low && !(isLog && s.low[i] <= 0) ? s.low[i] : y, b = s.high ? s.high[i] : y;
        if (px === column) {
          low = Math.min(low, a);
          high = Math.max(high, b);
          last = y;
          continue;
        }
        flush();
        column = px;
        low = a;
        high = b;
        last = y;
      }
      flush();
      g.stroke();
      g.setLineDash([]);
      if (s.style === "points" && end - begin < 200)
        for (let i = begin; i < end; ++i) {
          if (!Number.isFinite(s.y[i]) || s.x[i] < x0 || s.x[i] > x1) continue;
          g.beginPath(); g.arc(X(s.x[i]), Y(s.y[i]), 2.8, 0, 7); g.fill();
        }
      if (s.style !== "points" && end - begin === 1) { g.beginPath(); g.arc(X(s.x[begin]), Y(s.y[begin]), 2.5, 0, 7); g.fill(); }
      g.globalAlpha = 1;
    }

    // The points nearest to x, one per named series.
    nearest(x) {
      const found = [];
      for (const s of this.shown()) {
        if (!s.name || s.style === "faint") continue;
        let i = lowerBound(s.x, x);
        if (i === s.x.length || (i > 0 && x - s.x[i - 1] < s.x[i] - x)) --i;
        if (i >= 0 && Number.isFinite(s.y[i])) found.push({s, i, x: s.x[i], y: s.y[i]});
      }
      return found.sort((a, b) => b.y - a.y);
    }

    paintCursor(g, ink) {
      const {X, Y, box, x0, x1} = this.map;
      this.tip.hidden = true;
      if (this.cursor === null || this.cursor < x0 || this.cursor > x1) return;
      const found = this.nearest(this.cursor);
      if (!found.length) return;
      let near = found[0];
      for (const f of found) if (Math.abs(f.x - this.cursor) < Math.abs(near.x - this.cursor)) near = f;
      const px = X(near.x);
      g.strokeStyle = ink;
      g.globalAlpha = 0.5;
      g.lineWidth = 1;
      g.beginPath(); g.moveTo(Math.round(px) + 0.5, box.top); g.lineTo(Math.round(px) + 0.5, box.bottom); g.stroke();
      g.globalAlpha = 1;
      for (const f of found) {
        if (f.x < x0 || f.x > x1) continue;
        g.fillStyle = f.s.color;
        g.beginPath(); g.arc(X(f.x), Y(f.y), 3.2, 0, 7); g.fill();
      }
      if (this.isHovered) this.showTip(found, near.x, px);
    }
    showTip(found, x, px) {
      const box = this.map.box;
      this.tip.replaceChildren(element("div", "ic-tip-x", this.options.xLabel + " " + this.options.formatX(x)));
      for (const f of found.slice(0, 14)) {
        const row = element("div", "ic-tip-row"), swatch = element("i", "ic-line");
        swatch.style.background = f.s.color;
        row.append(swatch, element("span", "ic-tip-name", f.s.name + (f.x !== x ? " at " + this.options.formatX(f.x) : "")), element("b", "", this.options.formatY(f.y)));
        this.tip.append(row);
        if (f.s.low && f.s.low[f.i] !== f.s.high[f.i])
          row.append(element("small", "", this.options.formatY(f.s.low[f.i]) + " … " + this.options.formatY(f.s.high[f.i])));
      }
      for (const mark of this.marks)
        if (Math.abs(this.map.X(mark.x) - px) < 4) this.tip.append(element("div", "ic-tip-mark", mark.label));
      this.tip.hidden = false;
      const width = this.tip.offsetWidth, isRight = px + 14 + width > box.right;
      this.tip.style.left = Math.max(0, isRight ? px - 14 - width : px + 14) + "px";
      this.tip.style.top = box.top + "px";
    }

    zoomBy(factor, at) {
      const [low, high] = this.extent();
      const isLog = this.options.logX, to = isLog ? Math.log : (v) => v, from = isLog ? Math.exp : (v) => v;
      const a = to(low), b = to(high), middle = at === undefined ? (a + b) / 2 : to(at);
      this.showRange(from(middle - (middle - a) * factor), from(middle + (b - middle) * factor));
    }
    panBy(fraction) {
      if (!this.range) return;
      const isLog = this.options.logX, to = isLog ? Math.log : (v) => v, from = isLog ? Math.exp : (v) => v;
      const a = to(this.range[0]), b = to(this.range[1]);
      this.showRange(from(a + (b - a) * fraction), from(b + (b - a) * fraction));
    }
    // Zooms to the range, within the data; everything if the range covers it.
    showRange(low, high) {
      const range = this.range;
      this.range = null;
      const [first, last] = this.extent();
      this.range = range;
      const width = Math.min(high - low, last - first);
      if (!(width > (last - first) * 1e-6)) return;
      if (width >= (last - first) * 0.999) return this.setRange(null);
      if (low < first) { low = first; high = low + width; }
      if (high > last) { high = last; low = high - width; }
      this.setRange([low, high]);
    }

    listen() {
      const canvas = this.canvas, touches = new Map();
      const at = (event) => event.clientX - canvas.getBoundingClientRect().left;
      const inBox = (px) => Math.min(Math.max(px, this.map.box.left), this.map.box.right);
      canvas.addEventListener("pointerdown", (event) => {
        if (!this.map || event.button > 1) return;
        if (event.pointerType === "touch") { touches.set(event.pointerId, at(event)); return; }
        canvas.setPointerCapture(event.pointerId);
        this.drag = {from: inBox(at(event)), to: inBox(at(event)), isPan: event.shiftKey || event.button === 1, range: this.extent()};
      });
      canvas.addEventListener("pointermove", (event) => {
        if (!this.map) return;
        if (touches.has(event.pointerId) && touches.size === 2) {
          const before = [...touches.values()];
          touches.set(event.pointerId, at(event));
          const after = [...touches.values()];
          const [a, b] = before.map((px) => this.map.inverse(px));
          const spread = Math.abs(after[1] - after[0]), was = Math.abs(before[1] - before[0]);
          if (spread > 8 && was > 8) this.zoomBy(was / spread, (a + b) / 2);
          return;
        }
        if (touches.has(event.pointerId)) touches.set(event.pointerId, at(event));
        if (this.drag && this.drag.isPan) {
          const {inverse} = this.map, moved = inverse(this.drag.to) - inverse(at(event));
          this.drag.to = at(event);
          if (this.range) this.showRange(this.range[0] + moved, this.range[1] + moved);
          return;
        }
        if (this.drag) this.drag.to = inBox(at(event));
        this.isHovered = true;
        this.setCursor(this.map.inverse(inBox(at(event))));
      });
      const end = (event) => {
        touches.delete(event.pointerId);
        const drag = this.drag;
        this.drag = null;
        if (drag && !drag.isPan && this.map && Math.abs(drag.to - drag.from) > 6) {
          const range = [drag.from, drag.to].map(this.map.inverse).sort((a, b) => a - b);
          this.showRange(range[0], range[1]);
        }
        this.draw();
      };
      canvas.addEventListener("pointerup", end);
      canvas.addEventListener("pointercancel", end);
      canvas.addEventListener("pointerleave", () => {
        this.isHovered = false;
        this.setCursor(null);
      });
      canvas.addEventListener("dblclick", () => this.setRange(null));
      canvas.addEventListener("wheel", (event) => {
        if (!this.map) return;
        if (event.ctrlKey || event.metaKey) {
          event.preventDefault();
          this.zoomBy(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 100), this.map.inverse(inBox(at(event))));
        } else if (this.range && Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          event.preventDefault();
          this.panBy(event.deltaX / (this.map.box.right - this.map.box.left));
        }
      }, {passive: false});
      canvas.addEventListener("keydown", (event) => {
        const act = {ArrowLeft: () => this.panBy(-0.2), ArrowRight: () => this.panBy(0.2), "+": () => this.zoomBy(0.5),
          "=": () => this.zoomBy(0.5), "-": () => this.zoomBy(2), 0: () => this.setRange(null),
          l: () => this.setLogY(!this.options.logY)}[event.key];
        if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        act();
      });
    }
  }

  window.IngotChart = Object.assign(Chart, {PALETTE, formatNumber, formatTime, formatBytes, lowerBound, element});
})();
