"use strict";
// Which jobs are shown, and in which order: the search, the filters and the sorting. They are in the page's address.

const filters = (() => {
  const MOST_VALUES = 12; // of a column that can be chosen from a list; others are searched
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
  const columns = []; // {name, of, field, before}: what a job has in a column, and what is chosen or typed
  let unknown = []; // [name, value] in the address of columns that no job has, which may not be loaded yet

  function plain(text) {
    return text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  }

  function haystack(job) {
    job.haystack ??= plain(
      [job.row_id, job.prompt, job.model, job.generation_id, job.code, job.reason, ...job.fields.values()].join("\n"),
    );
    return job.haystack;
  }

  // What is chosen in a list, where `before` stands before each value but "all"; or what is typed.
  function chosen({ field, before }) {
    return field.value.slice(before.length);
  }

  function matching(jobs) {
    const words = plain(search.value).split(/\s+/).filter(Boolean);
    const tests = columns.filter(({ field }) => field.value).map((column) => {
      const value = chosen(column);
      if (column.before) return (job) => column.of(job) === value;
      return (job) => plain(column.of(job) ?? "").includes(plain(value));
    });
    return jobs.filter((job) => tests.every((test) => test(job)) && words.every((word) => haystack(job).includes(word)));
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

  function list(values, changed) {
    const select = document.createElement("select");
    select.replaceChildren(
      new Option("all", ""), ...values.map((value) => new Option(value.slice(0, 80) || "(empty)", `=${value}`)),
    );
    select.addEventListener("change", changed);
    return [select];
  }

  // A field for a part of a value, with the first values that have it.
  function part(name, values, changed) {
    const [field, offered] = [document.createElement("input"), document.createElement("datalist")];
    offered.id = `values of ${name}`.replaceAll(/\s/g, "-");
    Object.assign(field, { type: "search", placeholder: `any of ${values.length.toLocaleString()}`, spellcheck: false });
    field.setAttribute("list", offered.id);
    const suggest = () => {
      const typed = plain(field.value);
      const found = values.filter((value) => plain(value).includes(typed)).slice(0, MOST_VALUES);
      offered.replaceChildren(...found.map((value) => new Option("", value)));
    };
    suggest();
    field.addEventListener("input", suggest);
    typing(field, changed);
    return [field, offered];
  }

  // Calls back when somebody has typed, not at every letter.
  function typing(field, changed) {
    let timer;
    field.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(changed, 120);
    });
  }

  // For each column that has some values: a list where they are few, otherwise a search.
  function offer(jobs, changed) {
    columns.length = 0;
    document.getElementById("choices").replaceChildren();
    const carried = new Set(jobs.flatMap((job) => [...job.fields.keys()]));
    const known = [["Model", (job) => job.model], ...[...carried].map((name) => [name, (job) => job.fields.get(name)])];
    for (const [name, of] of known) {
      const values = new Set(jobs.map(of));
      values.delete(undefined);
      if (values.size < 2 || columns.length === MOST_COLUMNS) continue;
      const choice = cards.element("label", "choice");
      const text = document.createElement("bdi");
      text.textContent = name;
      const sorted = [...values].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
      const few = sorted.length <= MOST_VALUES;
      const [field, ...more] = few ? list(sorted, changed) : part(name, sorted, changed);
      choice.append(text, " ", field, ...more);
      document.getElementById("choices").append(choice);
      columns.push({ name, of, field, before: few ? "=" : "" });
    }
  }

  function toggle(name, among, changed, ...content) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...content, ` ${cards.word(name)} `, document.createElement("b"));
    button.addEventListener("click", () => {
      if (!among.delete(name)) among.add(name);
      changed();
    });
    return button;
  }

  // What is chosen, as a part of the page's address.
  function write(address) {
    if (search.value.trim()) address.set("search", search.value.trim());
    for (const state of pressed) address.append("state", state);
    for (const name of wanted) address.append("review", name);
    for (const [name, value] of unknown) address.set(name, value);
    for (const column of columns) if (column.field.value) address.set(`column ${column.name}`, chosen(column));
    if (sort.selectedIndex) address.set("sort", sort.value);
  }

  // Chooses what an address says, as far as it is there; the rest stays in the address.
  function read(address) {
    search.value = address.get("search") ?? "";
    for (const [among, name, known] of [[pressed, "state", buttons], [wanted, "review", reviews]]) {
      among.clear();
      for (const value of address.getAll(name)) if (known.has(value)) among.add(value);
    }
    const asked = new Map([...address].filter(([name]) => name.startsWith("column ")));
    for (const { name, field, before } of columns) {
      const value = asked.get(`column ${name}`);
      field.value = value === undefined ? "" : before + value;
      if (field.selectedIndex < 0) field.value = "";
      else asked.delete(`column ${name}`);
    }
    unknown = [...asked];
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
    typing(search, changed);
    document.getElementById("tools").addEventListener("submit", (event) => event.preventDefault());
    document.getElementById("clear").addEventListener("click", () => {
      search.value = "";
      pressed.clear();
      wanted.clear();
      for (const { field } of columns) field.value = "";
      unknown = [];
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
    offer,
    read,
    write,
    get active() {
      return Boolean(search.value.trim() || pressed.size || wanted.size || columns.some(({ field }) => field.value));
    },
  };
})();
