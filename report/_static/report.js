// Tables: a column of figures is aligned right, and a click on a heading sorts. No library, no request.
(() => {
  "use strict";

  // One switch for all code of a page.
  const article = document.querySelector(".bd-article");
  const folds = article ? [...article.querySelectorAll("div.cell details.above-input")] : [];
  if (folds.length) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "code-switch";
    const set = (open) => {
      article.classList.toggle("with-code", open);
      for (const fold of folds) fold.open = open;
      button.textContent = open ? "hide the code" : "show the code";
      button.setAttribute("aria-pressed", open);
    };
    button.addEventListener("click", () => set(button.getAttribute("aria-pressed") !== "true"));
    set(false);
    article.classList.add("switched");
    article.prepend(button);
  }

  // Of printed text sentences wrap, and rows of a table scroll.
  for (const pre of document.querySelectorAll(".bd-article div.output.stream pre")) {
    const parts = pre.textContent.split(/(?<=\n)/).map((line) => {
      const row = document.createElement("span");
      row.className = /\S {2,}\S|^ {2,}/.test(line) ? "printed-row" : "";
      row.textContent = line;
      return row;
    });
    pre.replaceChildren(...parts);
    // A table that is wider than its block is written smaller, as far as it can be read.
    let rows = [];
    for (const part of [...parts, null]) {
      if (part && part.className) { rows.push(part); continue; }
      const longest = Math.max(0, ...rows.map((row) => row.textContent.trimEnd().length));
      for (const row of rows) row.style.setProperty("--longest", longest);
      rows = [];
    }
  }

  // The first number of a cell: "12,345 (11,900 to 12,800)" is 12345; an empty cell or a dash is none, and 000 and 4x-gpu are names.
  const number = (text) => {
    const found = text.replace(/[\u2212\u2013](?=\d)/g, "-").replace(/(?<=\d)[,\u2009\u202f\u00a0](?=\d{3})/g, "").match(/^[^\w-]*(-?(?!0\d)\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\d.]*[a-z_])/i);
    return found ? Number(found[1]) : NaN;
  };
  const key = (row, column) => {
    const cell = row.cells[column];
    return cell ? cell.dataset.sort ?? cell.textContent.trim() : "";
  };
  const empty = (text) => /^(|\u2013|\u2014|-|nan|none)$/i.test(text);

  // What to take is read on a telephone too: there a row's cells stand below its model, each with its heading.
  for (const table of document.querySelectorAll("#what-to-take-and-what-to-expect table.plain-rows")) {
    const headings = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    table.classList.add("cards");
    for (const row of table.tBodies[0].rows)
      if (row.cells.length === headings.length) [...row.cells].forEach((cell, at) => { cell.dataset.heading = headings[at]; });
  }

  for (const table of document.querySelectorAll(".bd-article table:not(.plain):not(.docutils.field-list)")) {
    const head = table.tHead && table.tHead.rows[table.tHead.rows.length - 1];
    const body = table.tBodies[0];
    if (!head || !body) continue;
    const rows = [...body.rows];
    const spans = rows.some((row) => row.cells.length !== head.cells.length || [...row.cells].some((cell) => cell.colSpan > 1 || cell.rowSpan > 1));
    for (const row of rows) for (const cell of row.cells) if (cell.textContent.length > 40) cell.classList.add("long");
    if (spans) continue;
    const numeric = [...head.cells].map((_, column) => {
      const texts = rows.map((row) => key(row, column)).filter((text) => !empty(text));
      return texts.length > 0 && texts.every((text) => !Number.isNaN(number(text)));
    });
    [...head.cells].forEach((heading, column) => {
      if (numeric[column] && !table.classList.contains("gt_table")) {
        for (const cell of [heading, ...rows.map((row) => row.cells[column])]) cell.classList.add("number");
      }
      if (rows.length < 3 || (!numeric.includes(true) && rows.length <= 12)) return;
      table.classList.add("sortable");
      heading.setAttribute("aria-sort", "none");
      heading.tabIndex = 0;
      const sort = () => {
        const up = heading.getAttribute("aria-sort") !== "ascending";
        for (const other of head.cells) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
        heading.setAttribute("aria-sort", up ? "ascending" : "descending");
        const value = numeric[column] ? number : (text) => text.toLowerCase();
        body.append(...[...body.rows].sort((a, b) => {
          const [x, y] = [key(a, column), key(b, column)];
          if (empty(x) || empty(y)) return empty(x) - empty(y); // what is missing stays last
          const order = numeric[column] ? value(x) - value(y) : value(x).localeCompare(value(y), "en", { numeric: true });
          return up ? order : -order;
        }));
      };
      heading.addEventListener("click", sort);
      heading.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); }
      });
    });
  }
})();
