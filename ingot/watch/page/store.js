// The curves of the runs as the server's events tell them. A curve holds at most kMost points: older ones are
// joined in pairs that have their least, largest and mean value.
"use strict";
(function () {
  const kMost = 6000;

  class Curve {
    constructor(data) {
      this.x = data ? data.x.slice() : [];
      this.mean = data ? data.mean.slice() : [];
      this.low = data && data.low ? data.low.slice() : null;
      this.high = data && data.high ? data.high.slice() : null;
    }
    add(x, y) {
      this.x.push(x);
      this.mean.push(y);
      if (this.low) { this.low.push(y); this.high.push(y); }
      if (this.x.length > kMost) this.join();
    }
    // Joins neighbours of the older three quarters.
    join() {
      const low = this.low || this.mean, high = this.high || this.mean, until = Math.floor(kMost * 0.375) * 2;
      const out = {x: [], mean: [], low: [], high: []};
      for (let i = 0; i < until; i += 2) {
        out.x.push(this.x[i + 1]);
        out.mean.push((this.mean[i] + this.mean[i + 1]) / 2);
        out.low.push(Math.min(low[i], low[i + 1]));
        out.high.push(Math.max(high[i], high[i + 1]));
      }
      const rest = (column) => column.slice(until);
      this.x = out.x.concat(rest(this.x));
      this.low = out.low.concat(rest(low));
      this.high = out.high.concat(rest(high));
      this.mean = out.mean.concat(rest(this.mean));
    }
    last() { return this.mean.length ? this.mean[this.mean.length - 1] : undefined; }
  }

  // The y of a rising curve at x, by interpolation.
  function interpolated(curve, x) {
    const i = IngotChart.lowerBound(curve.x, x);
    if (curve.x.length === 0) return NaN;
    if (i === 0) return curve.x[0] > 0 && x >= 0 ? curve.mean[0] * x / curve.x[0] : curve.mean[0];
    if (i === curve.x.length) return curve.mean[i - 1];
    const f = (x - curve.x[i - 1]) / (curve.x[i] - curve.x[i - 1]);
    return curve.mean[i - 1] + f * (curve.mean[i] - curve.mean[i - 1]);
  }
  // The step at which a rising curve reaches y.
  function inverted(curve, y) {
    return interpolated({x: curve.mean, mean: curve.x}, y);
  }

  class Store {
    constructor(onChange) {
      this.runs = [];
      this.host = "";
      this.leftOut = 0;          // runs that the server does not show
      this.curves = new Map();   // run -> Map of key -> Curve
      this.events = new Map();
      this.samples = new Map();
      this.fractions = new Map();
      this.onChange = onChange;
      this.wanted = null;
    }

    // Connects for the curves of these runs.
    connect(wanted) {
      const key = wanted.join(",");
      if (key === this.wanted) return;
      this.wanted = key;
      if (this.source) this.source.close();
      const source = this.source = new EventSource("api/events?runs=" + key);
      const on = (name, act) => source.addEventListener(name, (event) => {
        if (source !== this.source) return;
        const data = JSON.parse(event.data);
        act(data);
        this.onChange(name, data.run);
      });
      source.onopen = () => this.onChange("open");
      source.onerror = () => this.onChange("lost");
      on("runs", (data) => {
        this.runs = data.runs;
        this.host = data.host;
        this.leftOut = data.left_out;
      });
      on("snapshot", (data) => {
        const curves = new Map();
        for (const [name, columns] of Object.entries(data.series)) curves.set(name, new Curve(columns));
        this.curves.set(data.run, curves);
        this.events.set(data.run, data.events);
        this.fractions.set(data.run, data.fraction);
      });
      on("lines", (data) => {
        const curves = this.curves.get(data.run);
        if (!curves) return;
        for (const [step, values] of data.lines)
          for (const [name, value] of Object.entries(values)) {
            if (value === null) continue;
            if (!curves.has(name)) curves.set(name, new Curve());
            curves.get(name).add(step, value);
          }
        this.events.set(data.run, (this.events.get(data.run) || []).concat(data.events).slice(-1000));
        this.fractions.set(data.run, 1);
      });
      on("samples", (data) => this.samples.set(data.run, data.samples));
    }

    curve(run, key) {
      const curves = this.curves.get(run);
      return curves && curves.get(key);
    }
    keys(run) { return this.curves.has(run) ? [...this.curves.get(run).keys()] : []; }

    // The x of a step on the axis "step", "tokens" or "time"; NaN if the run does not tell.
    along(run, axis, step) {
      if (axis === "step") return step;
      const curve = this.curve(run, axis === "tokens" ? "tokens" : "train_time_s");
      return curve ? interpolated(this.ends(curve), step) : NaN;
    }
    stepAt(run, axis, x) {
      if (axis === "step") return x;
      const curve = this.curve(run, axis === "tokens" ? "tokens" : "train_time_s");
      return curve ? inverted(this.ends(curve), x) : NaN;
    }
    // A rising curve at the ends of its buckets, where its value is the largest.
    ends(curve) { return curve.high ? {x: curve.x, mean: curve.high} : curve; }
  }

  // The exponential moving average without the bias of its start, as in TensorBoard.
  function smoothed(y, weight) {
    if (!(weight > 0)) return y;
    const out = new Array(y.length);
    let sum = 0, norm = 0;
    for (let i = 0; i < y.length; ++i) {
      if (!Number.isFinite(y[i])) { out[i] = y[i]; continue; }
      sum = weight * sum + (1 - weight) * y[i];
      norm = weight * norm + (1 - weight);
      out[i] = sum / norm;
    }
    return out;
  }

  window.IngotStore = Object.assign(Store, {smoothed, Curve});
})();
