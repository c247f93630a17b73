// A request that fails leaves the page as it is and says so: in the line of its own part, or in the toast.
const toast = document.getElementById("toast");

// Above what is open now, such as the list's sheet.
function raise() {
  toast.hidePopover();
  if (toast.firstElementChild) toast.showPopover();
}

export function tell(text) {
  const line = document.createElement("p");
  document.getElementById("say").textContent = line.textContent = text;
  toast.replaceChildren(line);
  raise();
}

function say(place, failed) {
  const line = document.getElementById(place.closest?.("[data-fails]")?.dataset.fails);
  if (line) line.textContent = failed ? line.dataset.lost : "";
  else if (failed) tell(toast.dataset.failed);
}

document.addEventListener("htmx:before:response", (event) => {
  const { raw } = event.detail.ctx.response;
  // Who is logged out is sent to a page of its own; a refusal with words of its own says how it is to be shown.
  const fine = (raw.ok && !raw.redirected) || raw.headers.has("HX-Reswap");
  say(event.target, !fine);
  if (!fine) event.preventDefault();
});
document.addEventListener("htmx:error", (event) => say(event.target, true));

// What was chosen is done; what was refused stays open with its reason.
document.addEventListener("htmx:after:swap", ({ target, detail: { ctx } }) => {
  if (ctx.request?.method !== "POST") return;
  if (ctx.response.raw.ok) target.closest?.(".popup")?.hidePopover();
  raise();
});
raise();
