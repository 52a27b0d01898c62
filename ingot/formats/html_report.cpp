#include "ingot/formats/html_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "ingot/formats/chart/chart_data.h"
#include "ingot/formats/chart/chart_files.h"
#include "ingot/formats/markup.h"

namespace ingot {
namespace {

constexpr std::string_view kStyle = R"css(
:root{color-scheme:light dark;--text:#1f2630;--soft:#5c6570;--line:#dfe3e8;--card:#f6f7f9;--page:#fff;--accent:#2563d8}
@media(prefers-color-scheme:dark){:root{--text:#e4e8ee;--soft:#9aa4b2;--line:#2c333d;--card:#181d24;--page:#0f1318;--accent:#7fb0ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif}
main{max-width:52rem;margin:0 auto;padding:2.2rem 1.2rem 3rem}
h1{font-size:1.75rem;line-height:1.2;margin:0;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:2.4rem 0 .8rem}
.sub{color:var(--soft);margin:.4rem 0 0}
.notice{border:1px solid #c2410c;border-left-width:.35rem;border-radius:.6rem;padding:.7rem .9rem;margin:1.2rem 0 0;white-space:pre-wrap;overflow-wrap:anywhere}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.7rem;margin:1.6rem 0 0;padding:0}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.8rem .9rem}
.tiles dt{color:var(--soft);font-size:.82rem}
.tiles dd{margin:.1rem 0 0;font-size:1.45rem;font-weight:650;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
figure{margin:1.1rem 0;padding:.7rem .4rem .3rem;border:1px solid var(--line);border-radius:.6rem}
figure svg{display:block;margin:0 auto}
.narrow{display:none}
@media screen{figure.has-chart .wide,figure.has-chart .narrow{display:none}figure.has-chart{border:0;padding:0}figure .ic{margin:0;padding:.6rem .8rem .5rem}}
@media print{.chart{display:none}}
@media(max-width:46rem){.wide{display:none}.narrow{display:block}main{padding:1.4rem .9rem 2rem}h1{font-size:1.4rem}}
table{width:100%;border-collapse:collapse;font-size:.93rem}
th,td{text-align:left;vertical-align:top;padding:.38rem 0;border-bottom:1px solid var(--line)}
th{font-weight:400;color:var(--soft);width:38%;padding-right:1rem}
.grid{overflow-x:auto}
.grid th,.grid td{width:auto;padding-right:1rem;white-space:nowrap}
td{font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
pre{font:.84rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.8rem .9rem;margin:.6rem 0;white-space:pre-wrap;overflow-wrap:anywhere}
.config{max-height:28rem;overflow-y:auto}
.sample,.commands{white-space:pre-wrap;overflow-wrap:anywhere}
.sample b{color:var(--accent);font-weight:600}
.caption{color:var(--soft);font-size:.85rem;margin:1rem 0 -.3rem}
@media print{:root{--text:#000;--soft:#444;--line:#ccc;--card:#fff;--page:#fff;--accent:#000}body{font-size:10.5pt}main{max-width:none;padding:0}.config{max-height:none}.wide{display:block}.narrow{display:none}figure,.tiles div,tr{break-inside:avoid}h2{break-after:avoid}pre{white-space:pre-wrap}}
)css";

std::string highlights(const std::vector<ReportRow>& rows) {
  std::string out;
  for (const ReportRow& row : rows)
    out +=
        fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape_markup(row.name), escape_markup(row.value));
  return out.empty() ? out : fmt::format("<dl class=\"tiles\">\n{}</dl>\n", out);
}

// Draws each plot twice: one size for screens and paper, one for phones, where the text of the large one
// would be too small to read. On a screen with scripts, an interactive chart of the same data replaces both.
std::string curves(const std::vector<LinePlot>& plots) {
  std::string out;
  for (LinePlot plot : plots) {
    plot.width_px = 760;
    plot.height_px = 380;
    out += fmt::format("<figure><div class=\"wide\">{}</div>", render_svg(plot));
    plot.width_px = 350;
    plot.height_px = 290;
    out += fmt::format("<div class=\"narrow\">{}</div>", render_svg(plot));
    if (is_interactive(plot))
      out += fmt::format("<script type=\"application/json\">{}</script>", chart_data(plot));
    out += "</figure>\n";
  }
  return out;
}

std::string samples(const std::vector<ReportSample>& all) {
  std::string out;
  for (const ReportSample& sample : all) {
    if (!sample.caption.empty())
      out += fmt::format("<p class=\"caption\">{}</p>\n", escape_markup(sample.caption));
    // HTML drops a newline right after <pre>, so one is written there; the text's own newlines stay.
    out += fmt::format("<pre class=\"sample\">\n<b>{}</b>{}</pre>\n", escape_markup(sample.prompt),
                       escape_markup(sample.text));
  }
  return out;
}

std::string table(const std::vector<ReportRow>& rows) {
  std::string out;
  for (const ReportRow& row : rows)
    out += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", escape_markup(row.name),
                       escape_markup(row.value));
  return out.empty() ? out : fmt::format("<table>\n{}</table>\n", out);
}

std::string grid(const ReportTable& table) {
  const auto row = [](const char* cell, const std::vector<std::string>& texts) {
    std::string out = "<tr>";
    for (const std::string& text : texts) out += fmt::format("<{0}>{1}</{0}>", cell, escape_markup(text));
    return out + "</tr>\n";
  };
  std::string out = "<div class=\"grid\"><table>\n" + row("th", table.columns);
  for (const auto& cells : table.rows) out += row("td", cells);
  out += "</table></div>\n";
  if (!table.remark.empty()) out += fmt::format("<p class=\"sub\">{}</p>\n", escape_markup(table.remark));
  return out;
}

std::string section(std::string_view heading, const std::string& body) {
  return body.empty() ? body : fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", heading, body);
}

std::string preformatted(std::string_view kind, const std::string& text) {
  return text.empty() ? text : fmt::format("<pre class=\"{}\">\n{}</pre>\n", kind, escape_markup(text));
}

}  // namespace

std::string render_html(const Report& report) {
  std::string commands;
  for (const std::string& command : report.commands) commands += command + "\n";
  const bool has_charts = std::ranges::any_of(report.curves, is_interactive);
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'\">\n"
      "<title>{0}</title>\n<style>{1}{2}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>\n",
      escape_markup(report.title), kStyle, has_charts ? chart_style() : "");
  if (!report.subtitle.empty())
    html += fmt::format("<p class=\"sub\">{}</p>\n", escape_markup(report.subtitle));
  if (!report.notice.empty())
    html += fmt::format("<p class=\"notice\" role=\"status\">{}</p>\n", escape_markup(report.notice));
  html += highlights(report.highlights);
  for (const ReportTable& table : report.tables) html += section(escape_markup(table.heading), grid(table));
  html += section("Curves", curves(report.curves));
  html += section("Samples", samples(report.samples));
  html += section("Summary", table(report.summary));
  html += section("Machine", table(report.machine));
  html += section("Provenance", table(report.provenance));
  html += section("Try next", preformatted("commands", commands));
  html += section("Configuration", preformatted("config", report.config));
  html += "</main>\n";
  if (has_charts) html += fmt::format("<script>{}{}</script>\n", chart_script(), report_script());
  return html + "</body>\n</html>\n";
}

}  // namespace ingot
