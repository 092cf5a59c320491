"use strict";
// The page: its header, its sections, and looking again while a run is under way.

(() => {
  const SLOWLY = 30; // seconds between two looks, when nothing has been written for some time
  const SILENT = 120; // seconds after which the run seems to have stopped
  const { element, ofUser } = cards;
  const at = (id) => document.getElementById(id);
  let section = 0;
  let jobs = [];

  function number(value) {
    return value.toLocaleString();
  }

  function partsOf(which) {
    const { perPart, perSection, parts } = callsheet.about;
    const first = (which * perSection) / perPart;
    return [first, Math.min(parts.length, first + perSection / perPart)];
  }

  function header() {
    const { outcome, stop, states, spent, inDoubt, limit, quoted, written } = callsheet.about;
    const badge = at("outcome");
    badge.hidden = false;
    badge.dataset.outcome = outcome ?? "running";
    badge.textContent = outcome ?? "running";
    const figures = [
      ["Jobs", `${number(states.stored ?? 0)} of ${number(callsheet.about.jobs)} stored`],
      ["Spent", limit === null ? `${spent} USD` : `${spent} of ${limit} USD`],
    ];
    if (inDoubt !== null) figures.push(["In doubt", `at most ${inDoubt} USD more`]);
    if (quoted !== null) figures.push(["Quoted", `${quoted} USD`]);
    figures.push(["Written", moment(written)]);
    at("figures").replaceChildren(...figures.map(([name, value]) => {
      const figure = element("div", "figure");
      figure.append(element("dt", "", name), element("dd", "", value));
      return figure;
    }));
    progress(states);
    notes(outcome, stop);
    plots();
  }

  // Each plot is drawn twice, for a light page and for a dark one.
  function plots() {
    const all = callsheet.about.plots ?? [];
    at("plots").hidden = !all.length;
    at("plots").lastElementChild.replaceChildren(...all.map(({ light, dark, text }) => {
      const plot = element("picture", "");
      const inDark = element("source", "");
      inDark.media = "(prefers-color-scheme: dark)";
      inDark.srcset = dark;
      const image = element("img", "");
      image.loading = "lazy";
      image.width = 1152;
      image.height = 576;
      image.src = light;
      image.alt = text;
      plot.append(inDark, image);
      return plot;
    }));
  }

  function moment(text) {
    const time = new Date(text);
    const today = time.toDateString() === new Date().toDateString();
    return time.toLocaleString(undefined, today ? { timeStyle: "medium" } : { dateStyle: "medium", timeStyle: "short" });
  }

  function progress(states) {
    const all = callsheet.about.jobs || 1;
    const known = filters.STATES.filter((state) => states[state]).map((state) => [state, states[state]]);
    at("progress").replaceChildren(...known.map(([state, count]) => {
      const bar = element("span", "");
      bar.dataset.state = state;
      bar.style.flexGrow = String(count / all);
      return bar;
    }));
    const words = known.map(([state, count]) => `${number(count)} ${cards.word(state)}`);
    at("progress").setAttribute("aria-label", `Jobs by state: ${words.join(", ")}`);
    at("progress").title = words.join(", ");
  }

  function notes(outcome, stop) {
    const { rejected, rejects, removed, parts, perPart, jobs: all } = callsheet.about;
    const list = [];
    if (stop) list.push(ofUser("span", "stop", outcome === "stopped" ? `Stopped: ${stop}` : stop));
    if (rejected) {
      const note = element("span", "");
      const link = element("a", "", "rejects.csv");
      link.href = rejects;
      note.append(`${number(rejected)} ${rejected === 1 ? "row" : "rows"} of the batch file rejected: see `, link);
      list.push(note);
    }
    const shown = Math.min(all, parts.length * perPart);
    if (shown < all) {
      list.push(element("span", "", `The first ${number(shown)} of ${number(all)} jobs are here `
        + "(report.contact_sheet); manifest.parquet and costs.parquet have all"));
    }
    if (removed) list.push(element("span", "", `Not here: ${number(removed)} paid jobs whose rows the batch file no longer has`));
    at("notes").replaceChildren(...list);
    at("notes").hidden = !list.length;
  }

  function sections() {
    const { parts, perPart, perSection } = callsheet.about;
    const count = Math.ceil((parts.length * perPart) / perSection);
    const place = at("sections");
    place.hidden = count < 2;
    if (place.hidden) return;
    const labels = Array.from({ length: count }, (_, which) => {
      const [first, last] = partsOf(which);
      const counts = {};
      let cardsHere = 0;
      for (const part of parts.slice(first, last)) {
        for (const [state, some] of Object.entries(part.counts)) {
          counts[state] = (counts[state] ?? 0) + some;
          cardsHere += some;
        }
      }
      const start = which * perSection;
      const wrong = ["failed", "in_doubt", "lost"].filter((state) => counts[state])
        .map((state) => `${number(counts[state])} ${cards.word(state)}`);
      return `Jobs ${number(start + 1)} to ${number(start + cardsHere)}${wrong.length ? `: ${wrong.join(", ")}` : ""}`;
    });
    let select = place.querySelector("select");
    if (!select) {
      select = element("select", "");
      select.setAttribute("aria-label", "Section: filters and search look at one section");
      select.addEventListener("change", () => go(select.selectedIndex));
      const previous = element("button", "", "←");
      previous.setAttribute("aria-label", "Previous section");
      previous.addEventListener("click", () => go(Math.max(0, section - 1)));
      const next = element("button", "", "→");
      next.setAttribute("aria-label", "Next section");
      next.addEventListener("click", () => go(Math.min(select.options.length - 1, section + 1)));
      place.append(previous, select, next, element("span", "", "Filters and search look at the jobs of this section."));
    }
    if (labels.some((label, n) => select.options[n]?.text !== label)) {
      select.replaceChildren(...labels.map((label) => new Option(label)));
    }
    select.selectedIndex = section;
  }

  async function go(which) {
    section = which;
    const [first, last] = partsOf(which);
    callsheet.forgetPartsBut(first, last);
    await callsheet.loadParts(first, last);
    jobs = callsheet.jobsOf(first, last);
    sections();
    proportions();
    changed();
    filters.prepare(jobs);
  }

  // The frames have the proportions of most of the files, within limits.
  function proportions() {
    const ratios = jobs.map(({ files: [file] }) => file?.width / file?.height).filter((ratio) => ratio > 0).sort((a, b) => a - b);
    if (!ratios.length) return;
    const median = ratios[ratios.length >> 1];
    at("cards").style.setProperty("--ratio", String(Math.min(1.5, Math.max(0.8, median)).toFixed(3)));
  }

  function redraw(options = {}) {
    filters.offer(jobs, changed);
    const shown = filters.apply(jobs);
    grid.show(shown, { among: jobs.length, ...options });
    at("clear").hidden = !filters.active;
    at("count").textContent = shown.length === jobs.length
      ? `${number(jobs.length)} ${jobs.length === 1 ? "job" : "jobs"}` : `${number(shown.length)} of ${number(jobs.length)} jobs`;
    at("empty").hidden = shown.length > 0;
    at("empty").textContent = jobs.length ? "No job matches these filters." : "This batch has no jobs.";
  }

  function changed() {
    redraw({ fromTop: true });
  }

  function later() {
    const { outcome, interval, written } = callsheet.about;
    const silent = (Date.now() - Date.parse(written)) / 1000;
    const news = outcome ? "" : silent > SILENT
      ? `nothing new since ${moment(written)}: the run may have stopped` : "updates by itself";
    if (at("news").textContent !== news) at("news").textContent = news;
    if (!outcome) setTimeout(again, 1000 * (silent > SILENT ? SLOWLY : interval));
  }

  async function again() {
    if (!document.hidden && await callsheet.look()) {
      header();
      const [first, last] = partsOf(section);
      if (await callsheet.loadParts(first, last)) {
        jobs = callsheet.jobsOf(first, last);
        redraw();
        viewer.refresh();
      }
      sections();
    }
    later();
  }

  async function start() {
    if (!callsheet.about) {
      at("empty").hidden = false;
      at("empty").textContent = "The jobs could not be loaded: data/summary.js is missing, or its signed address has expired.";
      document.documentElement.classList.remove("scripted");
      return;
    }
    filters.start(changed);
    grid.start((index) => viewer.open(index));
    header();
    await go(0);
    document.documentElement.dataset.ready = "";
    later();
  }

  // The last script of the page is the summary: by now it has run, or failed.
  if (document.readyState === "complete") start();
  else addEventListener("load", start);
})();
