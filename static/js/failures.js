// A part of the page whose request failed keeps what it shows and says so in its own line.
const line = (element) => element.closest("[data-fails]")?.querySelector("[data-lost]");

function failed(event) {
  const place = line(event.target);
  if (!place) return;
  event.preventDefault();
  place.textContent = place.dataset.lost;
}

document.addEventListener("htmx:before:response", (event) => {
  const { raw } = event.detail.ctx.response;
  const place = line(event.target);
  // Who is logged out is sent to a page of its own.
  if (!raw.ok || raw.redirected) failed(event);
  else if (place) place.textContent = "";
});
document.addEventListener("htmx:error", failed);

// The choice is made; what was refused stays open with its reason.
document.addEventListener("htmx:after:swap", (event) => {
  const picker = event.target.closest("#picker");
  if (picker && !line(picker).textContent) picker.hidePopover();
});
