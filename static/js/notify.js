// Browser notifications of this conversation: opted in per kind in the settings, and only while the tab is hidden.
import { ended, watchRun } from "./run.js";
import { kept } from "./store.js";

const words = document.getElementById("help").dataset;
// What could turn a text around or hide in it; a system's notification shows it as it is.
const TRICKS = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+/gu;

function tell(kind) {
  if (!kind || !document.hidden || kept(`notify.${kind}`) !== "1") return;
  if (!("Notification" in window) || Notification.permission !== "granted") return;
  const title = document.getElementById("title").textContent.replace(TRICKS, " ").trim();
  try {
    // The tag makes two tabs of one conversation tell it once.
    const note = new Notification(title, { body: words[kind], tag: document.getElementById("chat").dataset.conversation });
    note.addEventListener("click", () => {
      focus();
      note.close();
    });
  } catch {
    // Some phones take notifications from service workers only.
  }
}

watchRun((now, before) => tell(ended(now, before)));
