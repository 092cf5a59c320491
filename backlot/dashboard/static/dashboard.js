// Only what htmx cannot know: nothing is fetched for a page that nobody sees, and a server that is gone is said.
const away = document.getElementById("away");

document.body.addEventListener("htmx:beforeRequest", (event) => {
  if (document.hidden && event.detail.requestConfig.triggeringEvent === undefined) {
    event.preventDefault();
  }
});
for (const failure of ["htmx:sendError", "htmx:responseError"]) {
  document.body.addEventListener(failure, () => { away.hidden = false; });
}
document.body.addEventListener("htmx:beforeOnLoad", (event) => {
  if (event.detail.xhr.status < 400) { away.hidden = true; }
});
