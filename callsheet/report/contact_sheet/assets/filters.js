"use strict";
// Which jobs are shown, and in which order: the search, the filters and the sorting. They are in the page's address.

const filters = (() => {
  const MOST_VALUES = 60; // of a column that can be chosen from a list
  const MOST_COLUMNS = 8;
  const STATES = ["stored", "failed", "in_doubt", "lost", "pending", "generated", "submitting", "planned"];
  const REVIEW = {
    unmarked: (job) => marks.isUnmarked(job),
    kept: (job) => job.files.some((file) => file.decision === "kept"),
    rejected: (job) => job.files.some((file) => file.decision === "rejected"),
    flagged: (job) => job.files.some((file) => file.flags.length),
  };
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
  const reviews = new Map(); // a name of REVIEW -> its button
  const wanted = new Set(); // names of REVIEW
  const columns = []; // {name, of, select}: what a job has in a column, and what is chosen

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

  function count(button, number, isPressed, isThere) {
    button.hidden = !isThere && !isPressed;
    button.setAttribute("aria-pressed", String(isPressed));
    button.querySelector("b").textContent = number.toLocaleString();
  }

  // The jobs to show, in order. What has no cost or no time comes last. The buttons count those of each kind.
  function apply(jobs) {
    const found = matching(jobs);
    const counts = new Map();
    for (const job of found) counts.set(job.state, (counts.get(job.state) ?? 0) + 1);
    const present = new Set(jobs.map((job) => job.state));
    for (const [state, button] of buttons) count(button, counts.get(state) ?? 0, pressed.has(state), present.has(state));
    const marked = jobs.some((job) => job.files.some((file) => file.decision || file.flags.length));
    for (const [name, button] of reviews) {
      const is = REVIEW[name];
      count(button, found.filter(is).length, wanted.has(name), name === "unmarked" ? marked && jobs.some(is) : jobs.some(is));
    }
    const shown = found.filter((job) =>
      (!pressed.size || pressed.has(job.state)) && (!wanted.size || [...wanted].some((name) => REVIEW[name](job))));
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
      columns.push({ name, of, select });
    }
  }

  function toggle(name, chosen, changed, ...content) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...content, ` ${cards.word(name)} `, document.createElement("b"));
    button.addEventListener("click", () => {
      if (!chosen.delete(name)) chosen.add(name);
      changed();
    });
    return button;
  }

  // What is chosen, as a part of the page's address.
  function write(address) {
    if (search.value.trim()) address.set("search", search.value.trim());
    for (const state of pressed) address.append("state", state);
    for (const name of wanted) address.append("review", name);
    for (const { name, select } of columns) if (select.value) address.set(`column ${name}`, select.value.slice(1));
    if (sort.selectedIndex) address.set("sort", sort.value);
  }

  // Chooses what an address says, as far as it is there.
  function read(address) {
    search.value = address.get("search") ?? "";
    for (const [chosen, name, known] of [[pressed, "state", buttons], [wanted, "review", reviews]]) {
      chosen.clear();
      for (const value of address.getAll(name)) if (known.has(value)) chosen.add(value);
    }
    for (const { name, select } of columns) {
      const value = address.get(`column ${name}`);
      select.value = value === null ? "" : `=${value}`;
      if (select.selectedIndex < 0) select.value = "";
    }
    sort.value = address.get("sort") ?? "";
    if (sort.selectedIndex < 0) sort.selectedIndex = 0;
  }

  function start(jobs, changed) {
    for (const state of STATES) {
      buttons.set(state, toggle(state, pressed, changed, cards.mark(state)));
      buttons.get(state).dataset.state = state;
    }
    document.getElementById("states").append(...buttons.values());
    for (const name of Object.keys(REVIEW)) {
      reviews.set(name, toggle(name, wanted, changed));
      reviews.get(name).dataset.decision = name;
    }
    document.getElementById("reviews").append(...reviews.values());
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
      wanted.clear();
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
    read,
    write,
    get active() {
      return Boolean(search.value.trim() || pressed.size || wanted.size || columns.some(({ select }) => select.value));
    },
  };
})();
