"use strict";
// Loads what the run has written, as scripts: a page that is opened from a disk may load nothing else.
// Each of those scripts calls `summary` or `part`.

document.documentElement.classList.add("scripted");

const callsheet = (() => {
  const parts = []; // by number: {version, jobs}
  let about = null;
  const summarySource = document.currentScript
    .closest("head").querySelector('script[src*="summary.js"]').getAttribute("src");

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

  // The scripts with jobs, those that have changed only. Returns whether there were any.
  async function loadJobs() {
    const stale = about.parts.map((part, number) => ({ ...part, number }))
      .filter(({ number, version }) => parts[number]?.version !== version);
    await Promise.all(stale.map(async ({ src, version, number }) => {
      if (await load(src) && parts[number]) parts[number].version = version;
    }));
    return stale.length > 0;
  }

  // Looks whether the run has written anything new.
  async function look() {
    const signed = summarySource.includes("X-Amz-") || summarySource.includes("Signature=");
    const before = about.written;
    await load(signed ? summarySource : `${summarySource.split("?")[0]}?${Date.now()}`);
    return about.written !== before;
  }

  return {
    loadJobs,
    look,
    get about() {
      return about;
    },
    get jobs() {
      return parts.flatMap((part) => part?.jobs ?? []);
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
      parts[number] = { jobs };
    },
  };
})();
