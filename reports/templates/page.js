"use strict";
// The page without this script has every table, figure and verdict. With it tables sort, filter, page and download, the
// trade-off's axes are chosen, and a number opens what is behind it. Nothing here makes markup out of text: everything
// that a row says goes through textContent.
(() => {
  const LINES_A_PAGE = 50;
  const FEW_LINES = 8;
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const collator = new Intl.Collator("en", { numeric: true });

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "onclick") element.addEventListener("click", value);
      else element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== ""));
    return element;
  };
  const button = (text, onclick, more = {}) => make("button", { type: "button", onclick, ...more }, text);
  const slug = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "attnbench";

  const save = (name, type, content) => {
    const link = make("a", { download: name, href: URL.createObjectURL(new Blob([content], { type })) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const csv = (rows) => rows.map((row) => row.map((one) => {
    const text = one === null || one === undefined ? "" : String(one);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }).join(",")).join("\n") + "\n";

  // ---- the rows

  const ATTEMPT = ["id", "run", "suite", "variant", "form", "point", "seed", "scale", "device", "threads", "status", "reason",
    "code_hash", "data_hash", "testbed", "seconds", "started", "command"];
  const IS_NUMBER = new Set(["id", "seed", "threads", "seconds", "shipped"]);
  const places = new Map((DATA.attempts?.id ?? []).map((id, place) => [id, place]));
  const runs = new Map((DATA.runs ?? []).map((run) => [run.id, run]));
  const attempt = (place) => Object.fromEntries(Object.entries(DATA.attempts).map(([name, column]) =>
    [name, IS_NUMBER.has(name) ? column[place] : DATA.texts[column[place]]]));
  let numbers = null;
  const measured = (place) => {
    if (numbers === null) {
      numbers = new Map();
      DATA.rows.attempt.forEach((of, row) => numbers.set(of, [...(numbers.get(of) ?? []), row]));
    }
    return (numbers.get(place) ?? []).map((row) => ({
      metric: DATA.texts[DATA.rows.metric[row]], unit: DATA.texts[DATA.rows.unit[row]],
      better: DATA.texts[DATA.rows.better[row]], value: DATA.rows.value[row], samples: DATA.rows.samples[row],
    }));
  };
  const rowsAsCsv = (chosen) => {
    const found = chosen.map((place) => [attempt(place), measured(place)]);
    const settings = [...new Set(found.flatMap(([one]) => Object.keys(JSON.parse(one.point))))].sort();
    const fields = ATTEMPT.filter((name) => name !== "point");
    const head = [...fields, ...settings.map((name) => `point.${name}`), "metric", "unit", "better", "value", "samples",
      "cpu", "gpu", "commit"];
    const lines = found.flatMap(([one, theirs]) => {
      const point = JSON.parse(one.point);
      const facts = Object.fromEntries(runs.get(one.run)?.facts ?? []);
      const shared = [...fields.map((name) => one[name]), ...settings.map((name) => point[name])];
      return (theirs.length ? theirs : [{}]).map((row) => [...shared, row.metric, row.unit, row.better, row.value,
        row.samples ? JSON.stringify(row.samples) : "", facts.cpu, facts.gpu, runs.get(one.run)?.commit]);
    });
    return csv([head, ...lines]);
  };

  // ---- what is behind a number

  const dialog = document.getElementById("behind");
  const facts = (pairs) => make("dl", { class: "facts" }, ...pairs.filter(([, value]) => value !== "" && value !== null)
    .flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  const words = (name) => name.replaceAll("_", " ");
  const distinct = (values) => [...new Set(values)].join(", ");

  const tableOfAttempts = (found, metric) => {
    const heads = ["variant", "case", "seed", "ended as", ...(metric ? [words(metric)] : []), "samples", "seconds", "run",
      "code hash", "data hash"];
    const lines = found.slice(0, 200).map(([one, theirs]) => {
      const row = theirs.find((other) => other.metric === metric);
      const samples = (row?.samples ?? []).slice(0, 40).join(", ") + (row?.samples.length > 40 ? ", …" : "");
      const ended = one.status === "ok" ? "ok" : `${words(one.status)}${one.reason ? `: ${one.reason}` : ""}`;
      const cells = [`${one.variant}, ${one.form}`, Object.entries(JSON.parse(one.point)).map(([name, value]) => `${words(name)} ${value}`).join(", "),
        one.seed, ended, ...(metric ? [row ? row.value : "–"] : []), samples || "–", one.seconds.toPrecision(3),
        one.run + (one.shipped ? " (shipped)" : ""), one.code_hash.slice(0, 12) || "none", one.data_hash.slice(0, 12) || "none"];
      return make("tr", {}, ...cells.map((cell, place) => make("td", { class: place === 1 || place === 5 ? "label point" : "label" }, String(cell))));
    });
    const head = make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col", class: "label" }, text))));
    return make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "Table: attempts" },
      make("table", {}, make("caption", { class: "dim" }, found.length > 200 ? `The first 200 of ${found.length} attempts; the CSV has all.` :
        `${found.length} attempt${found.length === 1 ? "" : "s"}`), head, make("tbody", {}, ...lines)));
  };

  const textsOf = (found) => found.flatMap(([one]) => (DATA.artefacts?.[one.id] ?? []).map(([name, , text, length]) =>
    make("details", {}, make("summary", {}, `${name}, ${one.variant}, seed ${one.seed}`),
      make("pre", { tabindex: "0" }, make("code", {}, text.length < length ? `${text}… (${length} characters)` : text)))));

  const open = (opener) => {
    const given = opener.dataset;
    const chosen = (given.attempts ?? "").split(" ").filter(Boolean).map((id) => places.get(Number(id))).filter((place) => place !== undefined);
    const found = chosen.map((place) => [attempt(place), measured(place)]);
    const known = DATA.rows?.metric.some((of) => DATA.texts[of] === given.metric) ? given.metric : "";
    const ends = given.low && given.low !== "nan" ? `${given.low} to ${given.high}` : "";
    const used = [...new Map(found.map(([one]) => [one.run, runs.get(one.run)])).values()].filter(Boolean);
    const commands = [...new Set(found.map(([one]) => one.command))].filter(Boolean);
    const content = [facts([
      ["number", `${words(given.metric ?? "")} ${opener.textContent.trim()}`.trim()],
      ["spread", ends], ["n", given.n ? `${given.n} ${given.n === "1" ? given.counted.replace(/s$/, "") : given.counted}` : ""],
      ["published", given.published ? `${given.published}, ${given.citation.replace(/^published /, "")}` : ""], ["source", given.source ?? ""],
      ["suite", distinct(found.map(([one]) => words(one.suite)))], ["variant", distinct(found.map(([one]) => `${one.variant}, ${one.form}`))],
      ["scale", distinct(found.map(([one]) => `${one.scale} on ${one.testbed || one.device}`))],
      ["seeds", distinct(found.map(([one]) => one.seed))], ["data hash", distinct(found.map(([one]) => one.data_hash || "none"))],
      ["code hash", distinct(found.map(([one]) => one.code_hash || "none"))],
    ])];
    if (found.length) {
      content.push(tableOfAttempts(found, known), ...textsOf(found));
      content.push(make("h3", {}, commands.length === 1 ? "The command that reproduces it" : "The commands that reproduce it"));
      const text = commands.join("\n");
      content.push(make("pre", { tabindex: "0" }, make("code", {}, text)));
      content.push(make("p", { class: "tools" },
        button("Copy", () => navigator.clipboard?.writeText(text)),
        button("Rows as CSV", () => save(`${slug(`${found[0][0].suite}-${known || "rows"}`)}.csv`, "text/csv", rowsAsCsv(chosen)))));
      for (const run of used) {
        content.push(make("h3", {}, `Run ${run.id}`), facts([["command", run.command],
          ["ran", `${run.started.slice(0, 16).replace("T", " ")} to ${run.ended.slice(0, 16).replace("T", " ") || "not recorded"}, ${run.state}`],
          ...run.facts, ["environment", run.environment.map(([name, value]) => `${name}=${value}`).join(" ")]]));
      }
    }
    document.getElementById("behind-content").replaceChildren(...content);
    dialog.showModal();
    dialog.scrollTop = 0;
  };
  document.addEventListener("click", (event) => {
    const opener = event.target.closest("button.behind");
    if (opener) open(opener);
    else if (event.target === dialog) dialog.close();
  });

  // ---- tables

  const valueOf = (cell) => {
    const data = cell.querySelector("data");
    return data ? Number(data.value) : cell.classList.contains("absent") || cell.classList.contains("failed") || cell.classList.contains("status") ? null : cell.textContent.trim();
  };
  const compare = (one, other) => {
    if (one === null || other === null) return (one === null) - (other === null);
    if (typeof one === "number" && typeof other === "number") return one - other;
    return collator.compare(one, other);
  };
  const shortText = (cell) => (cell.querySelector("data, button.behind") ?? cell).textContent.trim();

  const exported = (table, lines) => {
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells].map((cell) => (cell.dataset.name ?? cell.textContent).trim());
    const axis = table.tHead.rows.length > 1 ? table.tHead.rows[0].lastElementChild.textContent.trim() : "";
    const isNumeric = heads.map((_, place) => lines.some((line) => line.cells[place]?.querySelector("data")));
    return { heads: heads.map((head, place) => (axis && isNumeric[place] ? `${axis} ${head}` : head)), isNumeric };
  };
  const tableAsCsv = (table, lines) => {
    const { heads, isNumeric } = exported(table, lines);
    const more = ["low", "high", "n", "published"];
    const head = heads.flatMap((one, place) => (isNumeric[place] ? [one, ...more.map((word) => `${one} ${word}`)] : [one]));
    return csv([head, ...lines.map((line) => [...line.cells].flatMap((cell, place) => {
      const given = cell.querySelector("button.behind")?.dataset ?? {};
      const value = cell.querySelector("data")?.value ?? shortText(cell);
      return isNumeric[place] ? [value, given.low, given.high, given.n, given.published] : [value];
    }))]);
  };
  const LATEX = { "\\": "\\textbackslash{}", "{": "\\{", "}": "\\}", "$": "\\$", "&": "\\&", "#": "\\#", "_": "\\_", "%": "\\%", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}",
    "–": "--", "≤": "$\\leq$", "≥": "$\\geq$", "·": "$\\cdot$", "φ": "$\\varphi$", "−": "$-$", "<": "\\textless{}", ">": "\\textgreater{}", "✓": "yes" };
  const latex = (text) => text.replace(/[\\{}$&#_%~^–≤≥·φ−<>✓]/g, (letter) => LATEX[letter]);
  const tableAsLatex = (table, lines, name) => {
    const { heads, isNumeric } = exported(table, lines);
    const rows = lines.map((line) => [...line.cells].map((cell) => {
      const spread = cell.querySelector("data") ? cell.querySelector("small")?.textContent ?? "" : "";
      return latex(shortText(cell)) + (/\d –|– \d/.test(spread) ? ` {\\scriptsize (${latex(spread)})}` : "");
    }).join(" & ") + " \\\\");
    return ["% needs \\usepackage{booktabs}", "\\begin{table}", `\\caption{${latex(name)}}`,
      `\\begin{tabular}{${isNumeric.map((is) => (is ? "r" : "l")).join("")}}`, "\\toprule",
      heads.map(latex).join(" & ") + " \\\\", "\\midrule", ...rows, "\\bottomrule", "\\end{tabular}", "\\end{table}", ""].join("\n");
  };

  const equip = (box) => {
    const table = box.querySelector("table");
    const body = table.tBodies[0];
    const all = [...body.rows];
    const name = box.dataset.name;
    const status = make("span", { class: "dim", role: "status" });
    let shown = all, from = 0, needle = "", sorted = null;
    const pager = make("span", { class: "pager" });
    const back = button("Previous", () => { from -= LINES_A_PAGE; draw(); });
    const on = button("Next", () => { from += LINES_A_PAGE; draw(); });
    pager.append(back, on);
    const draw = () => {
      from = Math.max(0, Math.min(from, Math.floor(Math.max(0, shown.length - 1) / LINES_A_PAGE) * LINES_A_PAGE));
      const visible = new Set(shown.slice(from, from + LINES_A_PAGE));
      body.replaceChildren(...shown, ...all.filter((line) => !shown.includes(line)));
      for (const line of all) {
        line.hidden = !visible.has(line);
        line.classList.toggle("left-out", !shown.includes(line));
      }
      pager.hidden = shown.length <= LINES_A_PAGE;
      back.disabled = from === 0;
      on.disabled = from + LINES_A_PAGE >= shown.length;
      const last = Math.min(from + LINES_A_PAGE, shown.length);
      status.textContent = shown.length > LINES_A_PAGE ? `${from + 1}–${last} of ${shown.length} lines` : shown.length < all.length ? `${shown.length} of ${all.length} lines` : "";
    };
    const choose = () => {
      shown = all.filter((line) => line.textContent.toLowerCase().includes(needle));
      if (sorted) {
        const sign = sorted.down ? -1 : 1;
        const keys = new Map(shown.map((line) => [line, valueOf(line.cells[sorted.place])]));
        shown.sort((one, other) => {
          const floors = one.classList.contains("floor") - other.classList.contains("floor");
          const [a, b] = [keys.get(one), keys.get(other)];
          return floors || (a === null || b === null ? compare(a, b) : sign * compare(a, b));
        });
      }
      from = 0;
      draw();
    };
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    heads.forEach((head, place) => {
      head.dataset.name = head.childNodes[0]?.textContent.trim() ?? "";
      const sort = button("", () => {
        const down = sorted?.place === place && !sorted.down;
        sorted = { place, down };
        for (const one of heads) one.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        choose();
      }, { class: "sort" });
      sort.append(...head.childNodes);
      head.append(sort);
    });
    const tools = make("div", { class: "tools" });
    if (all.length > FEW_LINES) {
      const filter = make("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${name}` });
      filter.addEventListener("input", () => { needle = filter.value.trim().toLowerCase(); choose(); });
      tools.append(filter);
    }
    tools.append(status, pager, make("span", { class: "downloads" },
      button("CSV", () => save(`${slug(name)}.csv`, "text/csv", tableAsCsv(table, shown)), { "aria-label": `${name} as CSV` }),
      button("LaTeX", () => save(`${slug(name)}.tex`, "application/x-tex", tableAsLatex(table, shown, name)), { "aria-label": `${name} as LaTeX` })));
    box.prepend(tools);
    draw();
  };
  document.querySelectorAll(".tablebox").forEach(equip);

  // ---- figures

  const INK = "#1c1f22", PAPER = "#ffffff";
  const standalone = (svg) => {
    const copy = svg.cloneNode(true);
    const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    for (const [name, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", width, height, color: INK })) copy.setAttribute(name, value);
    const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [name, value] of Object.entries({ width, height, fill: PAPER })) ground.setAttribute(name, value);
    copy.prepend(ground);
    return { text: new XMLSerializer().serializeToString(copy), width, height };
  };
  const asPng = (svg, name) => {
    const { text, width, height } = standalone(svg);
    const picture = new Image();
    picture.addEventListener("load", () => {
      const canvas = make("canvas", { width: Math.round(2 * width), height: Math.round(2 * height) });
      canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => save(name, "image/png", blob), "image/png");
      URL.revokeObjectURL(picture.src);
    });
    picture.src = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  };
  document.querySelectorAll("figure").forEach((figure) => {
    const svg = figure.querySelector("svg[role=img]");
    const name = figure.getAttribute("aria-label");
    figure.append(make("p", { class: "tools" }, make("span", { class: "downloads" },
      button("SVG", () => save(`${slug(name)}.svg`, "image/svg+xml", standalone(svg).text), { "aria-label": `${name} as SVG` }),
      button("PNG", () => asPng(svg, `${slug(name)}.png`), { "aria-label": `${name} as PNG` }))));
  });

  // ---- the axes of the trade-off

  const tradeoff = document.querySelector(".tradeoff");
  if (tradeoff) {
    const [quality, cost] = [document.getElementById("quality"), document.getElementById("cost")];
    [quality.value, cost.value] = tradeoff.dataset.shown.split("-");
    const choose = () => {
      const pair = `${quality.value}-${cost.value}`;
      let found = false;
      tradeoff.querySelectorAll(".pair").forEach((one) => {
        one.hidden = one.dataset.pair !== pair;
        found ||= !one.hidden;
      });
      tradeoff.querySelector(".no-pair").hidden = found;
    };
    quality.addEventListener("change", choose);
    cost.addEventListener("change", choose);
    tradeoff.querySelector(".axes").hidden = false;
  }

  // ---- light and dark, all rows, a claim that an address names

  const themes = ["system", "light", "dark"];
  const theme = button("", () => {
    const next = themes[(themes.indexOf(document.documentElement.dataset.theme ?? "system") + 1) % themes.length];
    document.documentElement.dataset.theme = next;
    theme.textContent = `Colours: ${next}`;
  }, { class: "theme" });
  theme.textContent = "Colours: system";
  document.querySelector("header")?.prepend(theme);

  const everything = document.getElementById("all-rows");
  if (everything) {
    everything.hidden = false;
    everything.addEventListener("click", () => save("attnbench-rows.csv", "text/csv", rowsAsCsv(DATA.attempts.id.map((_, place) => place))));
  }
  const unfold = () => {
    const named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let one = named; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
    named?.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  if (location.hash) unfold();
})();
