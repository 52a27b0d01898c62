// Draws the charts of report.html beside their pictures: the pictures stay for paper and mail. Every figure with an
// element of the type application/json has its data there.
"use strict";
(function () {
  for (const data of document.querySelectorAll("figure script[type='application/json']")) {
    const plot = JSON.parse(data.textContent), figure = data.parentElement;
    const area = IngotChart.element("div", "chart");
    figure.append(area);
    figure.classList.add("has-chart");
    const chart = new IngotChart(area, {title: plot.title, unit: plot.unit, xLabel: plot.x, logX: plot.logX, logY: plot.logY,
      group: plot.x, height: 320});
    chart.setSeries(plot.series.map((s, i) => ({name: s.name, color: IngotChart.PALETTE[(s.color < 0 ? i : s.color) % 8], x: s.px, y: s.py,
      low: s.low || null, high: s.high || null, style: s.style})));
  }
})();
