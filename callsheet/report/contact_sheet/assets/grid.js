"use strict";
// The grid: only the rows that are seen, and some around them, are in the document. It keeps the focus, and which of
// its jobs are selected. What it shows is a list of places in the batch: cards come with the part of their jobs.

const grid = (() => {
  const WHOLE = 500; // so many are all in the document: then the browser's own search finds them
  const TEXT = 5.9; // rem of a card's text, as in style.css
  const AROUND = 3; // rows above and below what is seen
  const DRAG = 6; // pixels from which on a press of the mouse is a rectangle
  const place = at("cards");
  const bar = at("selected");
  const topOfCards = () => place.getBoundingClientRect().top;
  const bottomOfTools = () => at("tools").getBoundingClientRect().bottom;
  const made = new Map(); // place in the batch -> card
  let places = [];
  let current = 0; // which of them the keyboard is at
  let key; // of its job
  let anchor = 0; // from where Shift selects
  let isDragged = false; // the click that follows is the end of a rectangle
  const selected = new Set(); // keys of jobs
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
    const top = -topOfCards();
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
      element.classList.toggle("selected", selected.has(keyAt(index)));
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
    anchor = current;
    if (selected.size) { // what is not shown any more is not selected
      const seen = new Set(places.map(callsheet.keyAt));
      select([...selected].filter((each) => seen.has(each)));
    }
    place.setAttribute("aria-busy", "true");
    if (fromTop) {
      current = 0;
      key = keyAt(0);
      const top = topOfCards() + scrollY - at("tools").offsetHeight - 12;
      if (scrollY > top) scrollTo(0, Math.max(0, top));
    }
    measure();
    draw(true);
    place.setAttribute("aria-busy", "false");
  }

  function scrollToCard(index) {
    const above = bottomOfTools();
    const top = topOfCards() + Math.floor(index / columns) * rowHeight;
    if (top < above + 8) scrollBy(0, top - above - 8);
    else if (top + rowHeight > innerHeight) scrollBy(0, top + rowHeight - innerHeight);
    draw(false);
  }

  const keyAt = (index) => callsheet.keyAt(places[index]);

  // Selects the jobs with these keys, and no others.
  function select(wanted) {
    selected.clear();
    for (const each of wanted) selected.add(each);
    for (const card of made.values()) {
      card.classList.toggle("selected", selected.has(keyAt(card.index)));
      if (card.job) cards.dress(card);
    }
    bar.hidden = !selected.size;
    bar.querySelector("output").textContent = selected.size ? `${selected.size.toLocaleString()} selected` : "";
  }

  // Those from the anchor to a job, besides these.
  function selectTo(index, others = []) {
    const [from, to] = [Math.min(anchor, index), Math.max(anchor, index)];
    select([...others, ...places.slice(from, to + 1).map(callsheet.keyAt)]);
  }

  function toggle(index) {
    const wanted = new Set(selected);
    if (!wanted.delete(keyAt(index))) wanted.add(keyAt(index));
    select(wanted);
  }

  // A rectangle that the mouse draws, from a picture or from between the cards, selects what it touches. On texts a
  // press selects text.
  function drag({ button, pointerType, target, pageX: x, pageY: y, ctrlKey, metaKey, shiftKey }) {
    if (button || pointerType !== "mouse" || target.closest(".head, .prompt, .facts, .none")) return;
    const before = ctrlKey || metaKey || shiftKey ? [...selected] : [];
    const frame = cards.element("div", "rectangle");
    const move = (event) => {
      const [left, right] = [x, event.pageX].sort((a, b) => a - b);
      const [top, bottom] = [y, event.pageY].sort((a, b) => a - b);
      if (!isDragged && Math.max(right - left, bottom - top) < DRAG) return;
      isDragged = true;
      getSelection().empty();
      Object.assign(frame.style, { left: `${left}px`, top: `${top}px`, width: `${right - left}px`, height: `${bottom - top}px` });
      document.body.append(frame);
      select([...before, ...touched(left, top, right, bottom).map(keyAt)]);
      if (event.clientY > innerHeight - 30) scrollBy(0, 20);
      if (event.clientY < bottomOfTools() + 30) scrollBy(0, -20);
    };
    const end = () => {
      removeEventListener("pointermove", move);
      frame.remove();
      setTimeout(() => { // after its click
        isDragged = false;
      });
    };
    addEventListener("pointermove", move);
    for (const name of ["pointerup", "pointercancel"]) addEventListener(name, end, { once: true });
  }

  // The cards in a rectangle of the page.
  function touched(left, top, right, bottom) {
    const { left: x, top: y, width } = place.getBoundingClientRect();
    const [across, gap] = [parseFloat(getComputedStyle(place).columnGap), parseFloat(getComputedStyle(place).rowGap)];
    const step = (width + across) / columns;
    const between = (from, to, size, space, most) => {
      const first = Math.max(0, Math.ceil((from + space) / size - 1));
      return Array.from({ length: Math.max(0, Math.min(Math.floor(to / size), most - 1) - first + 1) }, (_, at) => first + at);
    };
    const inColumns = between(left - scrollX - x, right - scrollX - x, step, across, columns);
    const inRows = between(top - scrollY - y, bottom - scrollY - y, rowHeight, gap, Math.ceil(places.length / columns));
    return inRows.flatMap((row) => inColumns.map((column) => row * columns + column)).filter((index) => index < places.length);
  }

  // Makes a job the one that Tab comes to.
  function point(index) {
    current = index;
    key = keyAt(current);
    for (const card of made.values()) card.tabIndex = card.index === current ? 0 : -1;
  }

  const indexOf = ({ job_key }) => places.indexOf(callsheet.placeOf(job_key));

  // Puts the focus on the card of a job; on the one that is at its place, if it is not shown any more.
  const focusOn = (job) => focusAt(indexOf(job));
  const focusAt = (index) => focus(index >= 0 ? index : current);

  // The place of the next job after this one, from the top again after the last, that has a file without a decision.
  function nextUnmarked(job, isWanted = () => true) {
    const at = indexOf(job);
    for (let step = 1; step <= places.length; step++) {
      const next = places[(Math.max(at, -1) + step) % places.length];
      if (next !== places[at] && marks.isUnmarked(next) && isWanted(next)) return next;
    }
    return undefined;
  }

  const isOfOtherRow = ({ row_id }) => (place) => callsheet.rowAt(place) !== row_id;

  // As a function that goes there, for after the mark: then this job may not be shown any more. Where several jobs are
  // selected, they stay so.
  function next(job, isWanted) {
    if (selected.size) return () => focusOn(job);
    const after = nextUnmarked(job, isWanted);
    return () => (after === undefined ? focusOn(job) : focusAt(places.indexOf(after)));
  }

  function focus(index = current, isToSelect = false) {
    if (!places.length) return;
    point(Math.min(Math.max(index, 0), places.length - 1));
    if (!selected.size && !isToSelect) anchor = current;
    scrollToCard(current);
    made.get(places[current])?.focus({ preventScroll: true });
  }

  // What the keyboard does wherever the focus is, but in what has keys of its own.

  function moved(event) {
    const page = Math.max(1, Math.floor(innerHeight / rowHeight)) * columns;
    const steps = {
      ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, PageDown: page, PageUp: -page,
      Home: -Infinity, End: Infinity,
    };
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.target.closest?.(".about, .tools, .selection, a, dialog")) return;
    if (event.key in steps) {
      event.preventDefault();
      if (!event.shiftKey) select([]);
      focus(current + steps[event.key], event.shiftKey);
      if (event.shiftKey) selectTo(current);
    } else if (event.key === "Escape") {
      select([]);
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
    document.addEventListener("keydown", moved);
    place.addEventListener("focusin", (event) => {
      if (event.target.index !== undefined) point(event.target.index);
    });
    place.addEventListener("click", (event) => {
      const { index } = event.target.closest(".card") ?? {};
      if (index === undefined || isDragged || getSelection().toString()) return;
      const isMore = event.ctrlKey || event.metaKey;
      if (event.shiftKey) {
        selectTo(index, isMore ? selected : []);
        focus(index);
      } else if (isMore) {
        toggle(index);
        anchor = index;
        focus(index);
      } else {
        opened(places[index]);
      }
    });
    place.addEventListener("mousedown", (event) => {
      if (event.shiftKey) event.preventDefault(); // it would select text
    });
    place.parentElement.addEventListener("pointerdown", drag);
    bar.querySelector("button:last-child").addEventListener("click", () => {
      select([]);
      focus();
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
    isOfOtherRow,
    selectAll: () => select(places.map(callsheet.keyAt)),
    // The places of what is selected, in order.
    get selected() {
      return selected.size ? places.filter((each) => selected.has(callsheet.keyAt(each))) : [];
    },
    get places() {
      return places;
    },
    get target() {
      const job = places.length ? callsheet.job(places[current]) : null;
      return job && { job, files: job.files };
    },
  };
})();
