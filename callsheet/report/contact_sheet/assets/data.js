"use strict";
// Loads what the run has written, as scripts: a page that is opened from a disk may load nothing else.
// Each of those scripts calls `summary` or `part`. A job has the fields of `Card` in cards.py.

document.documentElement.classList.add("scripted");

const callsheet = (() => {
  const parts = []; // by number: {version, jobs}
  let about = null;
  let all = null; // the jobs of all parts
  const source = document.querySelector('script[src*="summary.js"]').getAttribute("src");

  function load(src) {
    return new Promise((done) => {
      const script = document.createElement("script");
      script.src = src;
      script.onload = script.onerror = (event) => {
        script.remove();
        done(event.type === "load");
      };
      document.head.append(script);
    });
  }

  // The scripts with jobs, those that have changed only, or the first of them. Returns whether there were any.
  async function loadJobs(most = Infinity) {
    const stale = about.parts.map((part, number) => ({ ...part, number }))
      .filter(({ number, version }) => parts[number]?.version !== version).slice(0, most);
    await Promise.all(stale.map(async ({ src, version, number }) => {
      if (await load(src) && parts[number]) parts[number].version = version;
    }));
    return stale.length > 0;
  }

  // Looks whether the run has written anything new. A signed address can have nothing behind it.
  async function look() {
    const before = about.written;
    await load(source.includes("?") ? source : `${source}?${Date.now()}`);
    return about.written !== before;
  }

  // Each job of a row that has several says which it is.
  function number(jobs) {
    const rows = new Map();
    for (const job of jobs) {
      job.ordinal = (rows.get(job.row_id) ?? 0) + 1;
      rows.set(job.row_id, job.ordinal);
    }
    for (const job of jobs) job.of = rows.get(job.row_id);
  }

  return {
    loadJobs,
    look,
    get about() {
      return about;
    },
    get jobs() {
      if (!all) {
        all = parts.flatMap((part) => part?.jobs ?? []);
        number(all);
      }
      return all;
    },
    summary(value) {
      about = value;
    },
    part(number, jobs) {
      for (const job of jobs) {
        job.costs = Number(job.cost ?? NaN);
        job.time = Date.parse(job.finished_at ?? job.submitted_at ?? "") || NaN;
        job.fields = new Map(job.carried);
      }
      parts[number] = { jobs };
      all = null;
    },
  };
})();
