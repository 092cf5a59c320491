"use strict";
// Loads what the run has written, as scripts: a page that is opened from a disk may load nothing else.
// Each of those scripts calls one of `summary`, `part` and `pack`.

document.documentElement.classList.add("scripted");

const callsheet = (() => {
  const KEPT = 24; // packs in memory, some 3 MB each
  const parts = new Map(); // number -> {version, jobs}
  const packs = new Map(); // name -> {version, jpegs}, the least recently used first
  const tried = new Map(); // name of a pack -> version that was asked for
  const loading = new Map(); // address -> promise
  const events = new EventTarget();
  let about = null;
  const summarySource = document.currentScript
    .closest("head").querySelector('script[src*="summary.js"]').getAttribute("src");

  function load(src) {
    if (!loading.has(src)) {
      loading.set(src, new Promise((done) => {
        const script = document.createElement("script");
        script.src = src;
        script.onload = script.onerror = (event) => {
          script.remove();
          loading.delete(src);
          done(event.type === "load");
        };
        document.head.append(script);
      }));
    }
    return loading.get(src);
  }

  // The parts that show these jobs, those that have changed only. Returns whether there were any.
  async function loadParts(first, last) {
    const stale = [];
    for (let number = first; number < last; number++) {
      const { src, version } = about.parts[number];
      if (parts.get(number)?.version !== version) {
        stale.push(load(src).then((loaded) => {
          if (loaded && parts.has(number)) parts.get(number).version = version;
        }));
      }
    }
    await Promise.all(stale);
    return stale.length > 0;
  }

  function jobsOf(first, last) {
    const jobs = [];
    for (let number = first; number < last; number++) jobs.push(...(parts.get(number)?.jobs ?? []));
    return jobs;
  }

  // The address of a thumbnail, or null; then `pack` follows as an event if there is one.
  function thumbnail(place) {
    if (!place) return null;
    const [name, index] = place;
    const pack = packs.get(name);
    const written = about.packs[name] ?? { src: `data/thumbs-${name}.js`, version: 0 }; // of another run
    if (pack?.version !== written.version && tried.get(name) !== written.version) {
      tried.set(name, written.version);
      load(written.src).then((loaded) => {
        if (!loaded || !packs.has(name)) return;
        packs.get(name).version = written.version;
        events.dispatchEvent(new Event("pack"));
      });
    }
    if (!pack?.jpegs[index]) return null;
    packs.delete(name);
    packs.set(name, pack);
    return `data:image/jpeg;base64,${pack.jpegs[index]}`;
  }

  // Looks whether the run has written anything new.
  async function look() {
    const signed = summarySource.includes("X-Amz-") || summarySource.includes("Signature=");
    const before = about.written;
    await load(signed ? summarySource : `${summarySource.split("?")[0]}?${Date.now()}`);
    return about.written !== before;
  }

  return {
    events,
    load,
    loadParts,
    jobsOf,
    thumbnail,
    look,
    forgetPartsBut(first, last) {
      for (const number of [...parts.keys()]) if (number < first || number >= last) parts.delete(number);
    },
    get about() {
      return about;
    },
    summary(value) {
      about = value;
    },
    part(number, jobs) {
      for (const job of jobs) {
        job.costs = Number(job.cost ?? NaN);
        job.time = Date.parse(job.ended ?? job.sent ?? "") || NaN;
        job.fields = new Map(job.carried);
      }
      parts.set(number, { jobs });
    },
    pack(name, jpegs) {
      packs.delete(name);
      packs.set(name, { jpegs });
      while (packs.size > KEPT) {
        const oldest = packs.keys().next().value;
        packs.delete(oldest);
        tried.delete(oldest);
      }
    },
  };
})();
