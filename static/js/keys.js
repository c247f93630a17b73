// The keys that work all over the conversation page, and those that lead through a list.
const byId = (id) => document.getElementById(id);

const KEYS = {
  "?": () => byId("help").showModal(),
  "/": () => {
    if (byId("list-button").checkVisibility()) byId("sidebar").showPopover();
    byId("find-words").focus();
  },
  c: () => byId("text").focus(),
  End: () => byId("newer").click(),
};
const WITH_CONTROL = { O: () => byId("new").requestSubmit(), z: () => byId("undo")?.click() };

// The place before, behind, at the beginning or end of the places that a region names in data-walk.
function walked({ key, target }) {
  const region = target.closest("[data-walk]");
  const places = [...(region?.querySelectorAll(region.dataset.walk) ?? [])];
  const at = places.indexOf(target);
  return at < 0 ? null : places[{ ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: places.length - 1 }[key]];
}

document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  const typing = target.closest("input, textarea, select");
  if (event.defaultPrevented || event.altKey) return;
  const control = event.ctrlKey || event.metaKey;
  const next = !control && walked(event);
  const free = (!typing && !target.closest("dialog, .popup")) || key === "O";
  const back = key === "Escape" && target.closest("#thread") && KEYS.c;
  const act = next ? () => next.focus() : back || (free && (control ? WITH_CONTROL : KEYS)[key]);
  if (!act) return;
  event.preventDefault();
  act();
});
