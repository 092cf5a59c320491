"use strict";
// Which jobs are shown, and in which order: the search, the filters and the sorting. They are in the page's address.

const filters = (() => {
  const MOST_VALUES = 12; // of a column that can be chosen from a list; others are searched
  const STATES = ["stored", "failed", "in_doubt", "lost", "pending", "generated", "submitting", "planned"];
  const REVIEW = ["unmarked", "kept", "rejected", "flagged"]; // in the order of `marks.kinds`
  const MODEL = "Model"; // the column that is hidden from who decides blind
  const SORTS = {
    "Batch order": [],
    "Newest first": ["times", -1],
    "Oldest first": ["times", 1],
    "Most expensive": ["costs", -1],
    "Cheapest": ["costs", 1],
  };

  const { element } = cards;
  const search = at("search");
  const sort = at("sort");
  const states = { name: "state", field: "state", buttons: new Map(), pressed: new Set() };
  const reviews = { name: "review", field: "decision", buttons: new Map(), pressed: new Set() };
  const columns = []; // {name, field, before}: what is chosen or typed of a column of the overview
  let unknown = []; // [name, value] in the address of columns that no job has, which may not be loaded yet

  function plain(text) {
    return text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  }

  // What is chosen in a list, where `before` stands before each value but "all"; or what is typed.
  function chosen({ field, before }) {
    return field.value.slice(before.length);
  }

  function words() {
    return plain(search.value).split(/\s+/).filter(Boolean);
  }

  function isUsed({ name, field }) {
    return field.value && !(blind.isOn && name === MODEL);
  }

  // Those of these jobs that the search and the columns want.
  function matching(places) {
    // A text begins with a line that is the model.
    const from = (text) => (blind.isOn ? text.indexOf("\n") : 0);
    const tests = words().map((word) => (place) => callsheet.searched[place].includes(word, from(callsheet.searched[place])));
    for (const column of columns.filter(isUsed)) {
      const value = chosen(column);
      const { values, codes } = new Map(callsheet.all.columns).get(column.name) ?? { values: [], codes: [] };
      const is = column.before ? (each) => each === value : (each) => plain(each).includes(plain(value));
      const matches = new Set(values.flatMap((each, index) => (is(each) ? [index + 1] : [])));
      tests.push((place) => matches.has(codes[place]));
    }
    return tests.length ? places.filter((place) => tests.every((test) => test(place))) : places;
  }

  function count(button, number, isPressed, isThere) {
    button.hidden = !isThere && !isPressed;
    button.setAttribute("aria-pressed", String(isPressed));
    button.querySelector("b").textContent = number.toLocaleString();
  }

  function stateOf(place) {
    const { values, codes } = callsheet.all.states;
    return values[codes[place] - 1];
  }

  // How many of these jobs are in each state, and have files of each kind.
  function counted(places) {
    const { values, codes } = callsheet.all.states;
    const inState = Array(values.length + 1).fill(0); // by code
    const withKinds = Array(1 << REVIEW.length).fill(0); // by `marks.kinds`
    for (const place of places) {
      inState[codes[place]] += 1;
      withKinds[marks.kinds(place)] += 1;
    }
    const counts = Object.fromEntries(values.map((state, index) => [state, inState[index + 1]]));
    for (const [at, name] of REVIEW.entries()) {
      counts[name] = withKinds.reduce((sum, jobs, kinds) => sum + ((kinds >> at) & 1) * jobs, 0);
    }
    return counts;
  }

  // The places of the jobs to show, in order; all of them while the overview is not here. What has no cost or no time
  // comes last. The buttons count the jobs of each kind.
  function apply() {
    const all = [...Array(callsheet.about.shown).keys()];
    if (!callsheet.all) return all;
    const found = matching(all);
    const counts = counted(found);
    const ofAll = found === all ? counts : counted(all);
    for (const [state, button] of states.buttons) {
      count(button, counts[state] ?? 0, states.pressed.has(state), ofAll[state]);
    }
    const isStored = REVIEW.some((name) => ofAll[name]); // then these are there before the first mark moves them
    for (const [name, button] of reviews.buttons) {
      count(button, counts[name], reviews.pressed.has(name), name === "flagged" ? ofAll[name] : isStored);
    }
    const kinds = REVIEW.reduce((bits, name, at) => bits | (reviews.pressed.has(name) << at), 0);
    const { pressed } = states;
    const shown = pressed.size || kinds ? found.filter((place) =>
      (!pressed.size || pressed.has(stateOf(place))) && (!kinds || marks.kinds(place) & kinds)) : found;
    if (blind.isOn) return blind.mixed(shown);
    const [by, sign] = SORTS[sort.value];
    if (!by) return shown;
    const ranks = callsheet.all[by];
    const known = shown.filter((place) => ranks[place]).sort((a, b) => sign * (ranks[a] - ranks[b]));
    return known.concat(shown.filter((place) => !ranks[place]));
  }

  function list(values, changed) {
    const select = element("select");
    select.replaceChildren(
      new Option("all", ""), ...values.map((value) => new Option(value.slice(0, 80) || "(empty)", `=${value}`)),
    );
    select.addEventListener("change", changed);
    return [select];
  }

  // A field for a part of a value, with the first values that have it.
  function part(name, values, changed) {
    const [field, offered] = [element("input"), element("datalist")];
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
  function offer(changed) {
    columns.length = 0;
    at("choices").replaceChildren();
    for (const [name, { values }] of callsheet.all.columns) {
      const choice = element("label", name === MODEL ? "choice tells" : "choice");
      const sorted = [...values].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
      const few = sorted.length <= MOST_VALUES;
      const [field, ...more] = few ? list(sorted, changed) : part(name, sorted, changed);
      choice.append(element("bdi", "", name), " ", field, ...more);
      at("choices").append(choice);
      columns.push({ name, field, before: few ? "=" : "" });
    }
  }

  // The buttons of the states, or of the review.
  function toggles({ field, buttons, pressed }, names, changed) {
    for (const name of names) {
      const button = element("button");
      button.type = "button";
      button.hidden = true; // until it is known whether there is any
      button.dataset[field] = name;
      if (field === "state") button.append(cards.mark(name));
      button.append(` ${cards.word(name)} `, element("b"));
      button.addEventListener("click", () => {
        if (!pressed.delete(name)) pressed.add(name);
        changed();
      });
      buttons.set(name, button);
    }
    return buttons.values();
  }

  // What is chosen, as a part of the page's address.
  function write(address) {
    if (search.value.trim()) address.set("search", search.value.trim());
    for (const { name, pressed } of [states, reviews]) for (const each of pressed) address.append(name, each);
    for (const [name, value] of unknown) address.set(name, value);
    for (const column of columns) if (column.field.value) address.set(`column ${column.name}`, chosen(column));
    if (sort.selectedIndex) address.set("sort", sort.value);
  }

  // Chooses what an address says, as far as it is there; the rest stays in the address.
  function read(address) {
    search.value = address.get("search") ?? "";
    for (const { name, buttons, pressed } of [states, reviews]) {
      pressed.clear();
      for (const each of address.getAll(name)) if (buttons.has(each)) pressed.add(each);
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

  function start(changed) {
    at("states").append(...toggles(states, STATES, changed));
    at("reviews").append(...toggles(reviews, REVIEW, changed));
    sort.replaceChildren(...Object.keys(SORTS).map((name) => new Option(name)));
    sort.addEventListener("change", changed);
    typing(search, changed);
    at("tools").addEventListener("submit", (event) => event.preventDefault());
    at("clear").addEventListener("click", () => {
      search.value = "";
      states.pressed.clear();
      reviews.pressed.clear();
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
    get needsTexts() {
      return Boolean(callsheet.all && words().length && !callsheet.searched);
    },
    get active() {
      return Boolean(search.value.trim() || states.pressed.size || reviews.pressed.size || columns.some(isUsed));
    },
  };
})();
