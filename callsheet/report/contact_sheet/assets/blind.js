"use strict";
// Blind: nothing says of a file which model and settings it is from and what it has cost, and rows and their files have
// an order of their own. After the last decision what was hidden is shown, with how much so few files can say.

const blind = (() => {
  const NAME = "callsheet-blind"; // in this browser
  const SURE = 1.96; // standard deviations: 95 % of intervals have the share that very many files would have
  const { element } = cards;
  let isOn = false;
  let left = 0; // files without a decision, when this was last looked at
  let changed = () => {};

  function set(wanted) {
    isOn = wanted;
    document.documentElement.classList.toggle("blind", isOn);
    for (const button of document.querySelectorAll('[data-key="b"]')) button.setAttribute("aria-pressed", String(isOn));
  }

  // Hides what tells the files apart, or ends that. Returns whether it is hidden.
  function toggle() {
    const { kept, rejected, to_review: now } = marks.reviewed();
    left = now;
    set(!isOn);
    callsheet.remember(NAME, isOn ? "true" : "");
    changed();
    if (!isOn && kept + rejected) reveal();
    return isOn;
  }

  // After a mark: the last one ends it.
  function marked() {
    const before = left;
    left = marks.reviewed().to_review;
    if (isOn && before && !left) toggle();
  }

  // Rows, and the jobs of each row, by the keys of jobs, which are hashes.
  function mixed(places) {
    const { keys, rows } = callsheet.all;
    const first = new Map(); // row -> its first key
    for (const place of places) {
      const before = first.get(rows[place]);
      if (before === undefined || keys[place] < before) first.set(rows[place], keys[place]);
    }
    const order = (place) => `${first.get(rows[place])} ${keys[place]}`;
    const orders = new Map(places.map((place) => [place, order(place)]));
    return [...places].sort((a, b) => (orders.get(a) < orders.get(b) ? -1 : 1));
  }

  // Between which shares very many files would have: the Wilson interval of so many.
  function likely(share, count) {
    const spread = SURE ** 2 / count;
    const half = SURE * Math.sqrt((share * (1 - share)) / count + spread / (4 * count));
    return [-half, half].map((side) => (share + spread / 2 + side) / (1 + spread));
  }

  // Of the values of a setting, what is decided about files of each: the best first. Files of one row say less than as
  // many of several rows, so no more are counted than there are rows.
  function compared(lines, rows) {
    const decided = lines.map((line) => ({ ...line, of: line.kept + line.rejected })).filter(({ of }) => of);
    for (const line of decided) [line.low, line.high] = likely(line.kept / line.of, Math.min(line.of, rows));
    return decided.sort((a, b) => b.kept / b.of - a.kept / a.of);
  }

  // What can be said of the best and another one.
  function words(name, best, other, rows) {
    const [one, two] = [best, other].map(({ value, kept, of }) => `${cards.setting(name, value)} ${kept} of ${of}`);
    const chance = best.low <= other.high ? "may be chance" : "is hardly chance";
    return `Kept: ${one} and ${two}; with ${rows} ${rows === 1 ? "row" : "rows"} this ${chance}.`;
  }

  function reveal() {
    const rows = marks.decidedRows();
    const percent = (share) => Math.round(100 * share);
    at("reveal-left").textContent = left ? `${left.toLocaleString()} ${left === 1 ? "file is" : "files are"} not decided yet.` : "Every stored file is decided.";
    at("reveal-tables").replaceChildren(...marks.shares().map(([name, all]) => [name, compared(all, rows)])
      .filter(([, lines]) => lines.length).flatMap(([name, lines]) => [
        cards.table([cards.word(name), "kept", "of", "likely share", "USD spent", "USD a kept file"],
          lines.map(({ value, kept, of, low, high, spent, each }) =>
            [cards.setting(name, value), kept, of, `${percent(low)} to ${percent(high)} %`, spent, each ?? ""])),
        ...lines.slice(1).map((line) => element("p", "", words(name, lines[0], line, rows))),
      ]));
    at("reveal").showModal();
  }

  return {
    toggle, marked, mixed,
    // `redraw` is called when it begins or ends.
    start(redraw) {
      changed = redraw;
      left = marks.reviewed().to_review;
      set(callsheet.recalled(NAME) === "true");
    },
    get isOn() {
      return isOn;
    },
  };
})();
