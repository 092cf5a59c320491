"use strict";
// Which jobs are shown, and in which order: the search, the filters and the sorting.

const filters = (() => {
  const MOST_VALUES = 60; // of a column that can be chosen from a list
  const MOST_COLUMNS = 8;
  const STATES = ["stored", "failed", "in_doubt", "lost", "pending", "generated", "submitting", "planned"];
  const SORTS = {
    "Batch order": null,
    "Newest first": (a, b) => b.time - a.time,
    "Oldest first": (a, b) => a.time - b.time,
    "Most expensive": (a, b) => b.costs - a.costs,
    "Cheapest": (a, b) => a.costs - b.costs,
  };
  const SORTED_BY = { "Newest first": "time", "Oldest first": "time", "Most expensive": "costs", "Cheapest": "costs" };

  const search = document.getElementById("search");
  const sort = document.getElementById("sort");
  const chosenStates = new Set();
  const chosen = new Map(); // label of a column -> its select
  let columns = []; // {label, of}: what a job has in a column

  function plain(text) {
    return text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  }

  function haystack(job) {
    job.haystack ??= plain(
      [job.row, job.prompt, job.model, job.id, job.code, job.reason, ...job.fields.values()].join("\n"),
    );
    return job.haystack;
  }

  function matching(jobs, but) {
    const words = plain(search.value).split(/\s+/).filter(Boolean);
    const wanted = columns
      .filter(({ label }) => label !== but && chosen.get(label)?.value)
      .map(({ label, of }) => [of, chosen.get(label).value.slice(1)]);
    return jobs.filter((job) =>
      (but === "state" || !chosenStates.size || chosenStates.has(job.state)) &&
      wanted.every(([of, value]) => of(job) === value) &&
      words.every((word) => haystack(job).includes(word)));
  }

  // The jobs to show, in order. What has no cost or no time comes last.
  function apply(jobs) {
    const shown = matching(jobs);
    const order = SORTS[sort.value];
    if (!order) return shown;
    const by = SORTED_BY[sort.value];
    const known = shown.filter((job) => !Number.isNaN(job[by])).sort(order);
    return known.concat(shown.filter((job) => Number.isNaN(job[by])));
  }

  // The controls for these jobs; what was chosen stays chosen, and what has the focus keeps it.
  function offer(jobs, changed) {
    offerStates(jobs, changed);
    const values = new Map([["Model", new Set()]]);
    columns = [{ label: "Model", of: (job) => job.model }];
    for (const job of jobs) {
      values.get("Model").add(job.model);
      for (const [name, value] of job.fields) {
        const label = `column ${name}`; // none of them is called "Model"
        if (!values.has(label)) {
          values.set(label, new Set());
          columns.push({ label, name, of: (other) => other.fields.get(name) });
        }
        const seen = values.get(label);
        if (seen.size <= MOST_VALUES) seen.add(value);
      }
    }
    columns = columns.filter(({ label }) => {
      const { size } = values.get(label);
      return size > 1 && size <= MOST_VALUES && (size <= 12 || size < jobs.length);
    }).slice(0, MOST_COLUMNS);
    const place = document.getElementById("choices");
    for (const [label, select] of [...chosen]) {
      if (!columns.some((column) => column.label === label)) {
        select.parentElement.remove();
        chosen.delete(label);
      }
    }
    for (const { label, name } of columns) {
      if (!chosen.has(label)) {
        const choice = document.createElement("label");
        choice.className = "choice";
        const text = document.createElement("bdi");
        text.textContent = name ?? label;
        const select = document.createElement("select");
        select.addEventListener("change", changed);
        choice.append(text, " ", select);
        place.append(choice);
        chosen.set(label, select);
      }
      fill(chosen.get(label), [...values.get(label)].sort((a, b) => a.localeCompare(b, undefined, { numeric: true })));
    }
  }

  function fill(select, values) {
    const wanted = ["", ...values.map((value) => `=${value}`)];
    if (wanted.length === select.options.length && wanted.every((value, n) => select.options[n].value === value)) return;
    const before = select.value;
    select.replaceChildren(...wanted.map((value) => new Option(value ? value.slice(1, 81) || "(empty)" : "all", value)));
    select.value = wanted.includes(before) ? before : "";
  }

  function offerStates(jobs, changed) {
    const place = document.getElementById("states");
    const counts = new Map();
    for (const job of matching(jobs, "state")) counts.set(job.state, (counts.get(job.state) ?? 0) + 1);
    const present = new Set(jobs.map((job) => job.state));
    for (const state of STATES) {
      let button = place.querySelector(`[data-state="${state}"]`);
      if (!present.has(state) && !chosenStates.has(state)) {
        button?.remove();
        continue;
      }
      if (!button) {
        button = document.createElement("button");
        button.type = "button";
        button.dataset.state = state;
        button.append(cards.mark(state), ` ${cards.word(state)} `, document.createElement("b"));
        button.addEventListener("click", () => {
          if (!chosenStates.delete(state)) chosenStates.add(state);
          changed();
        });
        const after = STATES.slice(STATES.indexOf(state) + 1)
          .map((later) => place.querySelector(`[data-state="${later}"]`)).find(Boolean);
        place.insertBefore(button, after ?? null);
      }
      button.setAttribute("aria-pressed", String(chosenStates.has(state)));
      button.querySelector("b").textContent = (counts.get(state) ?? 0).toLocaleString();
    }
  }

  function start(changed) {
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
      chosenStates.clear();
      for (const select of chosen.values()) select.value = "";
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
    offer,
    start,
    get active() {
      return Boolean(search.value.trim() || chosenStates.size || [...chosen.values()].some((select) => select.value));
    },
  };
})();
