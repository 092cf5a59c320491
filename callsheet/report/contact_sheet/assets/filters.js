"use strict";
// Which jobs are shown, and in which order: the search, the filters and the sorting.

const filters = (() => {
  const MOST_VALUES = 60; // of a column that can be chosen from a list
  const MOST_COLUMNS = 8;
  const STATES = ["stored", "failed", "in_doubt", "lost", "pending", "generated", "submitting", "planned"];
  const SORTS = {
    "Batch order": [],
    "Newest first": ["time", -1],
    "Oldest first": ["time", 1],
    "Most expensive": ["costs", -1],
    "Cheapest": ["costs", 1],
  };

  const search = document.getElementById("search");
  const sort = document.getElementById("sort");
  const buttons = new Map(); // state -> its button
  const pressed = new Set(); // states
  const columns = []; // {of, select}: what a job has in a column, and what is chosen

  function plain(text) {
    return text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  }

  function haystack(job) {
    job.haystack ??= plain(
      [job.row_id, job.prompt, job.model, job.generation_id, job.code, job.reason, ...job.fields.values()].join("\n"),
    );
    return job.haystack;
  }

  function matching(jobs) {
    const words = plain(search.value).split(/\s+/).filter(Boolean);
    const chosen = columns.filter(({ select }) => select.value);
    return jobs.filter((job) =>
      chosen.every(({ of, select }) => of(job) === select.value.slice(1)) &&
      words.every((word) => haystack(job).includes(word)));
  }

  // The jobs to show, in order. What has no cost or no time comes last. The buttons count those of each state.
  function apply(jobs) {
    const found = matching(jobs);
    const counts = new Map();
    for (const job of found) counts.set(job.state, (counts.get(job.state) ?? 0) + 1);
    const present = new Set(jobs.map((job) => job.state));
    for (const [state, button] of buttons) {
      button.hidden = !present.has(state) && !pressed.has(state);
      button.setAttribute("aria-pressed", String(pressed.has(state)));
      button.querySelector("b").textContent = (counts.get(state) ?? 0).toLocaleString();
    }
    const shown = pressed.size ? found.filter((job) => pressed.has(job.state)) : found;
    const [by, sign] = SORTS[sort.value];
    if (!by) return shown;
    const known = shown.filter((job) => !Number.isNaN(job[by])).sort((a, b) => sign * (a[by] - b[by]));
    return known.concat(shown.filter((job) => Number.isNaN(job[by])));
  }

  // A list for each column that has some values, of which one can be chosen.
  function offer(jobs, changed) {
    const carried = new Set(jobs.flatMap((job) => [...job.fields.keys()]));
    const known = [["Model", (job) => job.model], ...[...carried].map((name) => [name, (job) => job.fields.get(name)])];
    for (const [name, of] of known) {
      const values = new Set(jobs.map(of));
      values.delete(undefined);
      const { size } = values;
      const few = size > 1 && size <= MOST_VALUES && (size <= 12 || size < jobs.length);
      if (!few || columns.length === MOST_COLUMNS) continue;
      const choice = cards.element("label", "choice");
      const text = document.createElement("bdi");
      text.textContent = name;
      const select = document.createElement("select");
      const sorted = [...values].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
      select.replaceChildren(
        new Option("all", ""), ...sorted.map((value) => new Option(value.slice(0, 80) || "(empty)", `=${value}`)),
      );
      select.addEventListener("change", changed);
      choice.append(text, " ", select);
      document.getElementById("choices").append(choice);
      columns.push({ of, select });
    }
  }

  function start(jobs, changed) {
    for (const state of STATES) {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.state = state;
      button.append(cards.mark(state), ` ${cards.word(state)} `, document.createElement("b"));
      button.addEventListener("click", () => {
        if (!pressed.delete(state)) pressed.add(state);
        changed();
      });
      buttons.set(state, button);
    }
    document.getElementById("states").append(...buttons.values());
    offer(jobs, changed);
    sort.replaceChildren(...Object.keys(SORTS).map((name) => new Option(name)));
    sort.addEventListener("change", changed);
    let timer;
    search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(changed, 120);
    });
    document.getElementById("tools").addEventListener("submit", (event) => event.preventDefault());
    document.getElementById("clear").addEventListener("click", () => {
      search.value = "";
      pressed.clear();
      for (const { select } of columns) select.value = "";
      changed();
      search.focus();
    });
    document.addEventListener("keydown", (event) => {
      const typing = event.target.closest?.("input, select, dialog");
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        search.focus();
        search.select();
      }
    });
  }

  return {
    STATES,
    apply,
    start,
    get active() {
      return Boolean(search.value.trim() || pressed.size || columns.some(({ select }) => select.value));
    },
  };
})();
