// The tab's title and icon: what goes on in it, and how much was answered since it was last seen.
import { ended, watchRun } from "./run.js";

const words = document.getElementById("help").dataset;
const icon = document.getElementById("icon");
const plainIcon = icon.href;
let bare = document.title;
let shown = bare;
let unseen = 0;
let run = watchRun((now, before) => {
  run = now;
  if (document.hidden && ended(now, before)) unseen += 1;
  show();
});

function show() {
  const going = run === "running" ? `● ${words.replying} – ` : "";
  shown = (unseen ? `(${unseen}) ` : "") + going + bare;
  if (document.title !== shown) document.title = shown;
  const wanted = unseen ? icon.dataset.dot : plainIcon;
  if (icon.getAttribute("href") !== wanted) icon.href = wanted;
}

// A new title from the server replaces ours, and is dressed again.
new MutationObserver(() => {
  if (document.title === shown) return;
  bare = document.title;
  show();
}).observe(document.querySelector("title"), { childList: true });
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) unseen = 0;
  show();
});
show();
