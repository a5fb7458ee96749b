// The explorer: filters, searches, sorts and opens the points that the page carries. No library, no request.
(() => {
  "use strict";
  const box = document.getElementById("explorer");
  const source = document.getElementById("explorer-data");
  if (!box || !source) return;
  const data = JSON.parse(source.textContent);
  const PAGE = 100;
  const CHOICES = ["machine", "model", "placement", "framework", "devices", "batch_size", "precision", "execution", "inputs"];
  const WORDS = { devices: "GPUs", batch_size: "batch", rate: "per second", n: "n", step_time_s: "step, ms", peak_memory_gib: "memory, GiB", other: "also" };
  const SHOWN = ["model", "placement", "rate", "n", "devices", "batch_size", "execution", "precision", "other", "step_time_s", "peak_memory_gib", "framework", "machine"];
  const TOLD = new Set(["n", "launches", "tier", "status", "reason", "flags", "commits"]);
  const NUMBERS = new Set(["devices", "batch_size", "n", "rate", "step_time_s", "peak_memory_gib"]);

  const figure = (name, row) => data.columns[name].numbers[row];
  const text = (name, row) => { const column = data.columns[name]; return column.values ? column.values[column.at ? column.at[row] : 0] : String(column.numbers[row] ?? ""); };
  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) name in made && name !== "list" ? (made[name] = value) : made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  // Beside the columns: what is not the usual, and every other field by which the points that are shown differ.
  const apart = Object.keys(data.columns).filter((name) => data.columns[name].at && !SHOWN.includes(name) && !TOLD.has(name));
  const usual = (name, row) => !data.fields.includes(name) || name === "device_type" || name === "workload" || /^(warmup|timed)_steps$/.test(name) || text(name, row) === (data.defaults[name] ?? "");
  let differing = new Set();
  const otherOf = (row) => apart.filter((name) => differing.has(name) || !usual(name, row)).map((name) => `${name}=${text(name, row) || "none"}`).join(" ");
  const rows = Array.from({ length: data.rows }, (_, row) => row);
  const compare = (found) => {
    const differ = (name) => found.some((row) => text(name, row) !== text(name, found[0]));
    differing = new Set(found.length > 1 && found.length <= PAGE ? apart.filter(differ) : []);
  };
  const said = rows.map((row) => [...Object.keys(data.columns).filter((name) => data.columns[name].values).map((name) => text(name, row)), otherOf(row), ...data.records[row]].join(" ").toLowerCase());

  // What the hash asks for: field=value, "|" between alternatives, "" for empty; key= Records, by how they begin; q= words.
  let wanted = {};
  let sorted = { by: "rate", up: false };
  let limit = PAGE;
  const readHash = () => {
    wanted = {};
    for (const [name, value] of new URLSearchParams(location.hash.replace(/^#/, "").replace(/\+/g, "%2B"))) wanted[name] = value;
  };
  const writeHash = () => {
    const parts = Object.entries(wanted).map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value).replace(/%7C/g, "|")}`);
    history.replaceState(null, "", parts.length ? `#${parts.join("&")}` : location.pathname + location.search);
  };
  const isAsked = (record) => wanted.key.split("|").some((key) => record.startsWith(key));
  const known = (name) => name === "key" || name === "q" || name in data.columns;
  const kept = (row) => Object.entries(wanted).every(([name, value]) => {
    if (name === "q") return value.toLowerCase().split(/\s+/).every((word) => said[row].includes(word));
    if (name === "key") return data.records[row].some(isAsked);
    if (!(name in data.columns)) return true;
    return value.split("|").includes(text(name, row));
  });

  const rate = (value) => value === null ? "\u2013" : value >= 1e6 ? `${(value / 1e6).toFixed(2)} M` : value.toLocaleString("en", { maximumSignificantDigits: 4 });
  const cell = (name, row) => {
    if (name === "other") return otherOf(row);
    if (name === "rate") {
      const [low, high] = [figure("rate_low", row), figure("rate_high", row)];
      const mfu = data.columns.mfu ? figure("mfu", row) : null;
      return rate(figure("rate", row)) + (low === null ? "" : ` (${rate(low)} to ${rate(high)})`) + (mfu === null ? "" : `, MFU ${mfu.toFixed(2)}`);
    }
    if (name === "step_time_s") return figure(name, row) === null ? "\u2013" : (1e3 * figure(name, row)).toLocaleString("en", { maximumSignificantDigits: 4 });
    if (name === "peak_memory_gib") return figure(name, row) === null ? "\u2013" : figure(name, row).toFixed(1);
    if (name === "n" && text("n", row) === "0") return text("status", row);
    return text(name, row);
  };
  const value = (name, row) => name === "other" ? otherOf(row) : data.columns[name].numbers ? figure(name, row) : NUMBERS.has(name) ? Number(text(name, row)) : text(name, row);

  const quoted = (word) => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\"'\"'")}'`;
  const command = (row) => "python -m multigpu measure " + data.fields
    .filter((name) => data.needed.includes(name) || text(name, row) !== (data.defaults[name] ?? ""))
    .map((name) => quoted(`${name}=${text(name, row)}`)).join(" ");
  const place = (record) => {
    const [key, file, end] = record.split(" ");
    const path = data.files[Number(file)];
    const item = element("li", {}, element("code", {}, key));
    if (path) item.append(" in ", element("a", { href: `${data.repository}/${path}` }, path));
    if (end) item.append(", member ", element("code", {}, key + end));
    return item;
  };
  const details = (row) => {
    const list = element("ul", {}, ...data.records[row].map(place));
    const told = element("dl");
    for (const name of [...data.fields, "gpu", "cpu", "framework_version", "launches", "status", "reason", "flags", "commits"]) {
      const content = text(name, row);
      if (content !== "" && content !== "0" && !(name in data.defaults && content === data.defaults[name])) told.append(element("dt", {}, name), element("dd", {}, content));
    }
    return element("div", { className: "explorer-details" },
      element("p", {}, "Measure it again: ", element("code", {}, command(row))),
      element("p", {}, "Records:"), list, told);
  };

  // Records of no point: all-reduces, training, synchrony, stages, and Runs under the profiler.
  const others = element("div");
  const showOthers = () => {
    const words = (wanted.q ?? "").toLowerCase().split(/\s+/);
    const found = data.others.filter(([folder, machine, asked, record]) => "key" in wanted ? isAsked(record)
      : wanted.q && words.every((word) => `${folder} ${machine} ${asked} ${record}`.toLowerCase().includes(word)));
    others.replaceChildren(element("p", { className: "muted" }, found.length
      ? (found.length === 1 ? "One Record of another kind" : `${found.length.toLocaleString("en")} Records of other kinds`) + (found.length > 20 ? ", the first 20:" : ":")
      : `${data.others.length.toLocaleString("en")} Records are of other kinds (all-reduces, training, synchrony, stages, traces): the search finds them by key and by what they asked for.`));
    for (const [folder, machine, asked, record] of found.slice(0, 20)) {
      const again = folder === "runs" ? [element("p", {}, "Measure it again: ", element("code", {}, `python -m multigpu measure ${asked}`))] : [];
      others.append(element("div", { className: "explorer-details" }, element("p", {}, `${folder}, ${machine}: ${asked}`), ...again, element("ul", {}, place(record))));
    }
    return found.length;
  };

  const search = element("input", { type: "search", placeholder: "search all fields", ariaLabel: "search all fields" });
  const reset = element("button", { type: "button" }, "all points");
  const count = element("p", { className: "muted" });
  count.setAttribute("aria-live", "polite");
  const selects = Object.fromEntries(CHOICES.map((name) => [name, element("select", { ariaLabel: WORDS[name] ?? name })]));
  const head = element("tr");
  const body = element("tbody");
  const more = element("button", { type: "button" });
  const headings = Object.fromEntries(SHOWN.map((name) => {
    const button = element("button", { type: "button" }, WORDS[name] ?? name);
    const heading = element("th", { scope: "col", className: NUMBERS.has(name) ? "number" : "" }, button);
    button.addEventListener("click", () => { sorted = { by: name, up: sorted.by === name ? !sorted.up : !NUMBERS.has(name) }; show(); });
    head.append(heading);
    return [name, heading];
  }));
  const controls = element("div", { className: "explorer-controls" }, search);
  for (const [name, select] of Object.entries(selects)) controls.append(element("label", {}, WORDS[name] ?? name, " ", select));
  controls.append(reset);
  box.replaceChildren(controls, count, element("div", { className: "wide" }, element("table", { className: "plain explorer" }, element("thead", {}, head), body)), more, others);

  const options = (name) => {
    const free = { ...wanted };
    delete free[name];
    const held = wanted; wanted = free;
    const found = [...new Set(rows.filter(kept).map((row) => text(name, row)))];
    wanted = held;
    const sortedFound = found.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const select = selects[name];
    select.replaceChildren(element("option", { value: "\u0000" }, "any"), ...sortedFound.map((one) => element("option", { value: one }, one || "(none)")));
    if (name in wanted && !found.includes(wanted[name])) select.append(element("option", { value: wanted[name] }, wanted[name].split("|").join(" or ")));
    select.value = name in wanted ? wanted[name] : "\u0000";
  };
  const show = () => {
    let found = rows.filter(kept);
    compare(found);
    if (sorted.by) {
      found = found.sort((a, b) => {
        const [x, y] = [value(sorted.by, a), value(sorted.by, b)];
        if (x === null || y === null) return (x === null) - (y === null);
        const order = typeof x === "number" ? x - y : x.localeCompare(y, "en", { numeric: true });
        return sorted.up ? order : -order;
      });
    }
    const odd = Object.keys(wanted).filter((name) => !known(name));
    const asked = Object.entries(wanted).filter(([name]) => !CHOICES.includes(name) && name !== "q")
      .map(([name, one]) => name === "key" && one.includes("|") ? "those that led here" : `${name}=${one}`);
    count.textContent = `${found.length.toLocaleString("en")} of ${data.rows.toLocaleString("en")} points` + (asked.length ? `, with ${asked.join(", ")}` : "") + (odd.length ? `; no field is called ${odd.join(" or ")}, which is ignored` : "") + ".";
    body.replaceChildren();
    for (const row of found.slice(0, limit)) {
      const line = element("tr", { tabIndex: 0, ariaExpanded: "false" }, ...SHOWN.map((name) => element("td", { className: NUMBERS.has(name) ? "number" : name === "other" ? "other" : "" }, cell(name, row))));
      const toggle = () => {
        if (line.nextSibling && line.nextSibling.className === "opened") { line.nextSibling.remove(); line.ariaExpanded = "false"; return; }
        line.after(element("tr", { className: "opened" }, element("td", { colSpan: SHOWN.length }, details(row))));
        line.ariaExpanded = "true";
      };
      line.addEventListener("click", toggle);
      line.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); } });
      body.append(line);
      if ("key" in wanted && found.length === 1) toggle();
    }
    const elsewhere = showOthers();
    if (!found.length) body.append(element("tr", {}, element("td", { colSpan: SHOWN.length }, elsewhere ? "No point has all of these; what follows has." : "No point has all of these: leave one out.")));
    more.hidden = found.length <= limit;
    more.textContent = `show all ${found.length.toLocaleString("en")}`;
    for (const [name, heading] of Object.entries(headings)) heading.setAttribute("aria-sort", sorted.by !== name ? "none" : sorted.up ? "ascending" : "descending");
    for (const name of CHOICES) options(name);
    if (document.activeElement !== search) search.value = wanted.q ?? "";
  };
  const changed = (name, one) => {
    if (one === null) delete wanted[name]; else wanted[name] = one;
    limit = PAGE;
    writeHash();
    show();
  };
  for (const [name, select] of Object.entries(selects)) select.addEventListener("change", () => changed(name, select.value === "\u0000" ? null : select.value));
  search.addEventListener("input", () => changed("q", search.value.trim() || null));
  reset.addEventListener("click", () => { wanted = {}; search.value = ""; limit = PAGE; writeHash(); show(); });
  more.addEventListener("click", () => { limit = data.rows; show(); });
  window.addEventListener("hashchange", () => { readHash(); limit = PAGE; show(); });
  readHash();
  show();
})();
