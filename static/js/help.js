// The sheet of keys, and the keys that work all over the conversation page.
const sheet = document.getElementById("help");
const thread = document.getElementById("thread");
const box = document.getElementById("text");
const typing = (place) => place.matches("input, textarea, select, [contenteditable]");

function open() {
  if (!sheet.open) sheet.showModal();
}

function bottom() {
  thread.scrollTop = thread.scrollHeight;
}

// The message before or after the focused one; behind the last is the message box.
function move(step) {
  const all = [...document.querySelectorAll("#log .msg")];
  const at = all.indexOf(document.activeElement.closest(".msg"));
  const next = at < 0 ? all[step < 0 ? all.length - 1 : all.length] : all[Math.max(0, at + step)];
  if (!next) {
    box.focus();
    return;
  }
  next.tabIndex = -1;
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: next.offsetHeight > thread.clientHeight ? "start" : "nearest" });
}

const KEYS = { "?": open, c: () => box.focus(), End: bottom };

function press(event) {
  const { key, target } = event;
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || sheet.open) return null;
  if (target.closest("[role=menu], [role=listbox], [role=dialog], dialog")) return null;
  if (event.altKey) {
    const step = { ArrowUp: -1, ArrowDown: 1 }[key];
    // In a text these keys move the caret on some systems.
    return step && (!typing(target) || (target === box && !box.value)) ? () => move(step) : null;
  }
  if (typing(target)) return null;
  if (key === "Escape") return target.closest("#thread") ? () => box.focus() : null;
  return KEYS[key] ?? null;
}

document.addEventListener("keydown", (event) => {
  const act = press(event);
  if (!act) return;
  event.preventDefault();
  act();
});
document.addEventListener("branchline:help", open);
for (const opener of document.querySelectorAll("[data-help]")) opener.addEventListener("click", open);
// A click beside the sheet closes it as its button does.
sheet.addEventListener("click", (event) => {
  if (event.target === sheet || event.target.closest("[data-close-help]")) sheet.close();
});
