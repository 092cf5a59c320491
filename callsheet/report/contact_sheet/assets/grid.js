"use strict";
// The grid: only the rows that are seen, and some around them, are in the document. It keeps the focus. What it shows
// is a list of places in the batch: cards come with the part of their jobs.

const grid = (() => {
  const WHOLE = 500; // so many are all in the document: then the browser's own search finds them
  const TEXT = 5.9; // rem of a card's text, as in style.css
  const AROUND = 3; // rows above and below what is seen
  const place = document.getElementById("cards");
  const made = new Map(); // place in the batch -> card
  let places = [];
  let current = 0; // which of them the keyboard is at
  let key; // of its job
  let columns = 1;
  let rowHeight = 300;
  let first = -1;
  let last = -1;
  let opened = () => {};

  function measure() {
    const style = getComputedStyle(place);
    const widths = style.gridTemplateColumns.split(" ");
    columns = widths.length;
    const text = TEXT * parseFloat(getComputedStyle(document.documentElement).fontSize);
    const height = Math.round(parseFloat(widths[0]) / parseFloat(style.getPropertyValue("--ratio")) + text);
    place.style.gridAutoRows = `${height}px`; // so that no card has to be laid out to know its size
    rowHeight = height + parseFloat(style.rowGap);
  }

  function range() {
    if (places.length <= WHOLE) return [0, places.length];
    const top = -place.getBoundingClientRect().top;
    const rows = Math.ceil(places.length / columns);
    const from = Math.min(Math.max(0, Math.floor(top / rowHeight) - AROUND), rows);
    const to = Math.min(rows, Math.ceil((top + innerHeight) / rowHeight) + AROUND);
    return [from * columns, Math.min(Math.max(to, from + 1) * columns, places.length)];
  }

  function card(index) {
    const job = callsheet.job(places[index]);
    const before = made.get(places[index]);
    const kept = before && (!job || before.job === job || before.looks === cards.looks(job));
    const element = kept ? before : job ? cards.make(job) : cards.blank();
    element.index = index;
    element.tabIndex = index === current ? 0 : -1;
    if (job) {
      element.job = job;
      const [follows, precedes] = [index - 1, index + 1].map((each) => callsheet.rowAt(places[each]) === job.row_id);
      element.dataset.group = follows ? (precedes ? "middle" : "last") : precedes ? "first" : "";
      cards.dress(element);
    }
    element.setAttribute("aria-posinset", String(index + 1));
    element.setAttribute("aria-setsize", String(places.length));
    if (kept) return element;
    made.set(places[index], element);
    const focused = before && before === document.activeElement;
    before?.replaceWith(element);
    if (focused) element.focus({ preventScroll: true });
    return element;
  }

  // Brings the document up to date; `all` also where the same jobs are seen.
  function draw(all) {
    const [from, to] = range();
    if (!all && from === first && to === last) return;
    [first, last] = [from, to];
    // First what is not wanted: of what stays in its place, nothing is moved then.
    const wanted = new Set(places.slice(from, to));
    for (const [each, element] of made) {
      if (wanted.has(each)) continue;
      if (element === document.activeElement) place.focus({ preventScroll: true });
      element.remove();
      made.delete(each);
    }
    for (const element of place.querySelectorAll(".plain")) element.remove();
    let before = null;
    for (let index = from; index < to; index++) {
      const element = card(index);
      const next = before ? before.nextElementSibling : place.firstElementChild;
      if (next !== element) place.insertBefore(element, next);
      before = element;
    }
    const rows = Math.ceil(places.length / columns);
    const above = Math.floor(from / columns);
    place.style.paddingTop = `${above * rowHeight}px`;
    place.style.paddingBottom = `${Math.max(0, rows - Math.ceil(to / columns)) * rowHeight}px`;
    callsheet.see([...wanted]);
  }

  // Shows the jobs at these places. The card with the focus keeps it, wherever it is now.
  function show(wanted, fromTop) {
    places = wanted;
    const now = key === undefined ? -1 : places.indexOf(callsheet.placeOf(key));
    current = now >= 0 ? now : Math.max(0, Math.min(current, places.length - 1));
    place.setAttribute("aria-busy", "true");
    if (fromTop) {
      current = 0;
      key = keyAt(0);
      const top = place.getBoundingClientRect().top + scrollY - document.getElementById("tools").offsetHeight - 12;
      if (scrollY > top) scrollTo(0, Math.max(0, top));
    }
    measure();
    draw(true);
    place.setAttribute("aria-busy", "false");
  }

  function scrollToCard(index) {
    const above = document.getElementById("tools").getBoundingClientRect().bottom;
    const top = place.getBoundingClientRect().top + Math.floor(index / columns) * rowHeight;
    if (top < above + 8) scrollBy(0, top - above - 8);
    else if (top + rowHeight > innerHeight) scrollBy(0, top + rowHeight - innerHeight);
    draw(false);
  }

  function keyAt(index) {
    return callsheet.all?.keys[places[index]] ?? callsheet.job(places[index])?.job_key;
  }

  // Makes a job the one that Tab comes to.
  function point(index) {
    const before = made.get(places[current]);
    if (before) before.tabIndex = -1;
    current = index;
    key = keyAt(current);
    const now = made.get(places[current]);
    if (now) now.tabIndex = 0;
  }

  function indexOf({ job_key }) {
    return places.indexOf(callsheet.placeOf(job_key));
  }

  // Puts the focus on the card of a job; on the one that is at its place, if it is not shown any more.
  function focusOn(job) {
    focusAt(indexOf(job));
  }

  function focusAt(index) {
    focus(index >= 0 ? index : current);
  }

  // The place of the next job after this one, from the top again after the last, that has a file without a decision.
  function nextUnmarked(job, isWanted = () => true) {
    const at = indexOf(job);
    for (let step = 1; step <= places.length; step++) {
      const next = places[(Math.max(at, -1) + step) % places.length];
      if (next !== places[at] && marks.isUnmarked(next) && isWanted(next)) return next;
    }
    return undefined;
  }

  // As a function that goes there, for after the mark: then this job may not be shown any more.
  function next(job) {
    const after = nextUnmarked(job);
    return () => (after === undefined ? focusOn(job) : focusAt(places.indexOf(after)));
  }

  function focus(index = current) {
    if (!places.length) return;
    point(Math.min(Math.max(index, 0), places.length - 1));
    scrollToCard(current);
    made.get(places[current])?.focus({ preventScroll: true });
  }

  function moved(event) {
    const page = Math.max(1, Math.floor(innerHeight / rowHeight)) * columns;
    const steps = {
      ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, PageDown: page, PageUp: -page,
      Home: -Infinity, End: Infinity,
    };
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key in steps) {
      event.preventDefault();
      focus(current + steps[event.key]);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (places.length) opened(places[current]);
    }
  }

  function start(open) {
    opened = open;
    let waiting = false;
    addEventListener("scroll", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        draw(false);
      });
    }, { passive: true });
    new ResizeObserver(() => {
      measure();
      draw(true);
    }).observe(document.documentElement);
    place.addEventListener("keydown", moved);
    place.addEventListener("focusin", (event) => {
      if (event.target.index !== undefined) point(event.target.index);
    });
    place.addEventListener("click", (event) => {
      const { index } = event.target.closest(".card") ?? {};
      if (index !== undefined && !getSelection().toString()) opened(places[index]);
    });
  }

  return {
    start,
    show,
    measure,
    draw: () => draw(true),
    focus,
    focusOn,
    indexOf,
    next,
    nextUnmarked,
    get places() {
      return places;
    },
    get target() {
      const job = places.length ? callsheet.job(places[current]) : null;
      return job && { job, files: job.files };
    },
  };
})();
