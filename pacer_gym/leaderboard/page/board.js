// What the page does beyond its table: filter, permalinks, theme, charts.  Sorting is sortable-tablesort's,
// drawing uPlot's.  Texts of entries only ever become text nodes.
"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const boards = JSON.parse(at("At.data").textContent);
  const STYLES = [[], [7, 4], [2, 3]];
  const FEW = 7;

  function make(tag, text, parent, attributes) {
    const element = document.createElement(tag);
    if (text !== "") element.textContent = text;
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    if (parent) parent.append(element);
    return element;
  }

  const colorOf = (name) => {
    const probe = make("span", "", document.body, { class: name, hidden: "" });
    const color = getComputedStyle(probe).color;
    probe.remove();
    return color;
  };

  // A column whose low values are the better ones is sorted upwards first: the library turns
  // around whatever the column says it is.
  document.addEventListener("click", (event) => {
    const head = event.target.closest("th[data-first]");
    if (head && head.dataset.first === "ascending" && !head.hasAttribute("aria-sort")) {
      head.setAttribute("aria-sort", "descending");
    }
  }, true);

  class Track {
    constructor(section) {
      this.section = section;
      this.data = boards[+section.dataset.track];
      this.shown = new Set(this.data.entries.slice(0, FEW).map((entry) => entry.name));
      this.picked = "";
      this.family = "";
      this.charts = [...section.querySelectorAll(".chart")].map((place) => new Chart(this, place));
      this.fillLegend();
      section.querySelector(".charts").hidden = this.data.entries.length === 0;
      for (const button of section.querySelectorAll("[data-pick]")) {
        button.addEventListener("click", () => this.pickMany(button.dataset.pick));
      }
    }

    look(entry) {
      const k = this.data.entries.indexOf(entry);
      return { color: "c" + (k % 7), dash: STYLES[Math.floor(k / 7) % STYLES.length] };
    }

    inFamily() {
      return this.data.entries.filter((entry) => !this.family || entry.family === this.family);
    }

    drawn() {
      return this.inFamily().filter((entry) => this.shown.has(entry.name));
    }

    fillLegend() {
      const choices = this.section.querySelector(".choices");
      choices.replaceChildren();
      for (const entry of this.inFamily()) {
        const { color, dash } = this.look(entry);
        const label = make("label", "", choices);
        const box = make("input", "", label, { type: "checkbox" });
        box.checked = this.shown.has(entry.name);
        box.addEventListener("change", () => {
          this.shown[box.checked ? "add" : "delete"](entry.name);
          this.draw();
        });
        label.append(swatch(color, dash));
        make("span", entry.name + (entry.rank ? "" : " (not ranked)"), label);
      }
    }

    pickMany(which) {
      const entries = this.inFamily();
      const count = which === "all" ? entries.length : which === "best" ? FEW : 0;
      this.shown = new Set(entries.slice(0, count).map((entry) => entry.name));
      this.fillLegend();
      this.draw();
    }

    filter(family) {
      this.family = family;
      let count = 0;
      for (const row of this.section.querySelectorAll("tr[data-family], .entry")) {
        row.hidden = family !== "" && row.dataset.family !== family;
        if (row.tagName === "TR" && !row.hidden) count += 1;
      }
      const divider = this.section.querySelector(".divider");
      if (divider) divider.hidden = !this.section.querySelector(".others tr:not([hidden])");
      this.fillLegend();
      this.draw();
      return count;
    }

    pick(name) {
      this.picked = name;
      if (this.data.entries.some((entry) => entry.name === name)) this.shown.add(name);
      this.fillLegend();
      this.draw();
    }

    draw() {
      for (const chart of this.charts) chart.draw();
    }
  }

  function swatch(color, dash) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    const of = { width: 26, height: 10, class: color, "aria-hidden": "true" };
    const ends = { x1: 0, y1: 5, x2: 26, y2: 5, stroke: "currentColor", "stroke-width": 3, "stroke-dasharray": dash.join(" ") };
    for (const [name, value] of Object.entries(of)) svg.setAttribute(name, value);
    for (const [name, value] of Object.entries(ends)) line.setAttribute(name, value);
    svg.append(line);
    return svg;
  }

  class Chart {
    constructor(track, place) {
      this.track = track;
      this.place = place;
      this.kind = place.dataset.chart;
      this.plot = place.querySelector(".plot");
      this.select = place.querySelector("select");
      this.readout = place.querySelector(".readout");
      this.select.addEventListener("change", () => this.draw());
      new ResizeObserver(() => this.fit()).observe(this.plot);
    }

    // Of every entry that is drawn: x and y of its line, and its rows of the table below.
    lines() {
      const scenario = this.select.value;
      return this.track.drawn().map((entry) => {
        if (this.kind === "curves") {
          const curve = entry.curves[scenario];
          return { entry, curve, x: curve.points.map((p) => p[0]), y: curve.points.map((p) => p[1]), rows: curve.points };
        }
        const told = entry.timelines[scenario];
        const rows = told.percent.map((y, k) => [told.edges[k], told.edges[k + 1], y]);
        return { entry, told, x: rows.map(([a, b]) => (a + b) / 2), y: told.percent, rows };
      });
    }

    draw() {
      if (this.u) this.u.destroy();
      this.u = null;
      this.near = null;
      this.readout.textContent = "\u00a0";
      const lines = this.lines();
      this.tell(lines);
      if (lines.length === 0 || this.plot.clientWidth === 0) return;
      const tables = lines.map(({ x, y }) => [x, y]);
      this.u = new uPlot(this.options(lines), tables.length === 1 ? tables[0] : uPlot.join(tables), this.plot);
    }

    fit() {
      const width = this.plot.clientWidth;
      if (width === 0) return;
      if (!this.u) this.draw();
      else if (this.u.width !== width) this.u.setSize({ width, height: this.u.height });
    }

    options(lines) {
      const faint = colorOf("faint");
      const grid = { stroke: colorOf("line"), width: 1 };
      const axis = { stroke: faint, grid, ticks: grid, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif" };
      const curves = this.kind === "curves";
      const [low, high] = curves ? rateRange(lines) : [0, Math.max(...lines.map(({ told }) => told.edges.at(-1)))];
      const inside = lines.flatMap(({ x, y }) => y.filter((value, k) => value !== null && x[k] >= low && x[k] <= high));
      // Of a curve, what lies far below the target tells nothing; of a timeline, how deep it falls does.
      const bottom = Math.max(curves ? 50 : 0, 10 * Math.floor((Math.min(88, ...inside) - 1) / 10));
      const markers = lines.length <= 12;
      return {
        width: this.plot.clientWidth,
        height: 320,
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, focus: { prox: 24 }, points: { size: 7 } },
        focus: { alpha: 0.35 },
        scales: { x: { time: false, range: () => [low, high] }, y: { range: () => [bottom, 101] } },
        axes: [
          { ...axis, label: curves ? "offered rate (requests/s)" : "time of arrival (s)", labelSize: 22, size: 34 },
          { ...axis, label: "requests within their targets (%)", labelSize: 22, size: 40 },
        ],
        series: [{}, ...lines.map(({ entry }) => {
          const { color, dash } = this.track.look(entry);
          const width = entry.name === this.track.picked ? 4 : 2;
          return { label: entry.name, stroke: colorOf(color), width, dash, spanGaps: true, points: { show: markers, size: 5 } };
        })],
        hooks: {
          drawAxes: [(u) => this.behind(u, faint)],
          draw: [(u) => this.inFront(u, lines)],
          setSeries: [(u, k) => { this.near = k; }],
          setCursor: [(u) => this.read(u)],
        },
      };
    }

    // The target, and when the machine is slowed.
    behind(u, faint) {
      const { ctx, bbox } = u;
      ctx.save();
      const slowed = this.kind === "timelines" ? this.track.data.drift[this.select.value] : [];
      if (slowed.length === 2) {
        const [left, right] = slowed.map((time) => u.valToPos(time, "x", true));
        ctx.globalAlpha = 0.12;
        ctx.fillStyle = faint;
        ctx.fillRect(left, bbox.top, right - left, bbox.height);
        ctx.globalAlpha = 1;
      }
      const y = Math.round(u.valToPos(90, "y", true));
      ctx.strokeStyle = faint;
      ctx.lineWidth = 1.5 * devicePixelRatio;
      ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      ctx.restore();
    }

    // On the 90 % line, the interval of each capacity.
    inFront(u, lines) {
      if (this.kind !== "curves") return;
      const { ctx, bbox } = u;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      const y = u.valToPos(90, "y", true);
      for (const { entry, curve } of lines) {
        const [low, high] = curve.interval;
        if (low === null || high === null) continue;
        ctx.strokeStyle = colorOf(this.track.look(entry).color);
        ctx.globalAlpha = 0.55;
        ctx.lineWidth = 7 * devicePixelRatio;
        ctx.beginPath();
        ctx.moveTo(u.valToPos(low, "x", true), y);
        ctx.lineTo(u.valToPos(high, "x", true), y);
        ctx.stroke();
      }
      ctx.restore();
    }

    read(u) {
      const near = this.near;
      const index = near > 0 ? u.cursor.idxs[near] : null;
      if (index === null || index === undefined || u.data[near][index] == null) {
        this.readout.textContent = "\u00a0";
        return;
      }
      const x = u.data[0][index];
      const where = this.kind === "curves" ? `at ${x.toFixed(2)} requests/s` : `for arrivals around ${x.toFixed(0)} s`;
      this.readout.textContent = `${u.series[near].label}: ${u.data[near][index].toFixed(1)} % ${where}`;
    }

    // The chart in words and numbers.
    tell(lines) {
      const scenario = this.select.value;
      const curves = this.kind === "curves";
      const table = this.place.querySelector(".numbers");
      table.replaceChildren();
      make("caption", `${curves ? "Attainment by rate" : "Attainment by time of arrival"} on ${scenario}`, table);
      const heads = curves ? ["entry", "rate (req/s)", "mean (%)", "worst seed (%)", "best seed (%)", "seeds"] : ["entry", "from (s)", "to (s)", "attainment (%)"];
      const head = make("tr", "", make("thead", "", table));
      for (const text of heads) make("th", text, head, { scope: "col" });
      const body = make("tbody", "", table);
      for (const { entry, rows } of lines) {
        for (const values of rows) {
          const row = make("tr", "", body);
          make("th", entry.name, row, { scope: "row" });
          values.forEach((value, k) => {
            const digits = curves ? [2, 1, 1, 1, 0][k] : [0, 0, 1][k];
            make("td", value === null ? "–" : value.toFixed(digits), row);
          });
        }
      }
      let caption, told;
      if (curves) {
        const best = lines.reduce((a, b) => (a && a.curve.capacity >= b.curve.capacity ? a : b), null);
        caption = "Mean over the seeds. Dashed: the 90 % that capacity is read at; the bar on it is a capacity's 95 % interval.";
        told = best ? `; the most is carried by ${best.entry.name}, ${best.curve.capacity.toFixed(2)} requests/s` : "";
      } else {
        const lows = lines.map(({ y }) => Math.min(...y.filter((value) => value !== null)));
        const worst = lows.indexOf(Math.min(...lows));
        const when = this.track.data.drift[scenario].length ? "Shaded: while the machine is slowed" : "When the machine is slowed differs by seed";
        caption = `${when}. All entries meet ${lines.length ? lines[0].told.rate.toFixed(2) : ""} requests/s; mean over the seeds.`;
        told = lines.length ? `; the lowest point is ${lows[worst].toFixed(0)} %, of ${lines[worst].entry.name}` : "";
      }
      this.place.querySelector(".caption").textContent = lines.length ? caption : "No entry is chosen.";
      const count = `${lines.length} ${lines.length === 1 ? "entry" : "entries"}`;
      this.plot.setAttribute("role", "img");
      this.plot.setAttribute("aria-label", `${this.place.querySelector("h3").textContent} on ${scenario}: ${count}${told}. The numbers are in the table below.`);
    }
  }

  // Far beyond capacity all curves look alike, and far below they are flat.
  function rateRange(lines) {
    const carried = lines.map(({ curve }) => curve.capacity).filter((value) => value > 0);
    const rates = lines.flatMap(({ x }) => x);
    const low = carried.length ? Math.max(Math.min(...rates), 0.7 * Math.min(...carried)) : Math.min(...rates);
    const high = carried.length ? Math.min(Math.max(...rates), 1.25 * Math.max(...carried)) : Math.max(...rates);
    const margin = 0.03 * (high - low) || 0.1 * high;
    return [low - margin, high + margin];
  }

  const tracks = [...document.querySelectorAll(".track")].map((section) => new Track(section));
  const family = at("At.family");

  function filter() {
    const count = tracks.reduce((sum, track) => sum + track.filter(family.value), 0);
    const all = document.querySelectorAll("tr[data-family]").length;
    at("At.shown").textContent = `${count} of ${all} entries`;
  }

  // Names of entries are in small letters, ids of the page begin with a capital.  "#name" marks a row, "#name.track" one of another track than the first, "#About.name" opens what is known of an entry.
  function follow() {
    let id = "";
    try {
      id = decodeURIComponent(location.hash.slice(1));
    } catch { /* no name of ours */ }
    const target = id && at(id);
    for (const old of document.querySelectorAll(".picked")) {
      old.classList.remove("picked");
      old.removeAttribute("aria-current");
    }
    const isRow = target && target.matches("tr[data-family]");
    if (!isRow && !(target && target.matches(".entry"))) return;
    if (target.hidden) {
      family.value = "";
      filter();
    }
    target.classList.add("picked");
    if (isRow) target.setAttribute("aria-current", "true");
    else target.open = true;
    const name = target.dataset.name;
    for (const track of tracks) track.pick(track.section.contains(target) ? name : "");
    target.scrollIntoView({ block: isRow ? "center" : "start", inline: "start" });
  }

  const theme = at("At.theme");
  const wantsDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme || (wantsDark.matches ? "dark" : "light")) === "dark";

  function paint() {
    theme.textContent = isDark() ? "Light theme" : "Dark theme";
    for (const track of tracks) track.draw();
  }

  theme.hidden = false;
  theme.addEventListener("click", () => {
    const chosen = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    try {
      localStorage.setItem("pacer-gym-theme", chosen);
    } catch { /* a page from a file may have no storage */ }
    paint();
  });
  wantsDark.addEventListener("change", paint);
  try {
    const kept = localStorage.getItem("pacer-gym-theme");
    if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
  } catch { /* likewise */ }

  if (family) {
    family.addEventListener("change", filter);
    filter();
  }
  paint();
  addEventListener("hashchange", follow);
  follow();
})();
