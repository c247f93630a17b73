// The menu of a conversation: one for all of their buttons, beside the one that was pressed.
const GAP = 4;

export function startMenu(list, { chosen, opened }) {
  const menu = document.getElementById("menu");
  const items = [...menu.querySelectorAll("button")];
  let button = null;

  const open = (from, item) => {
    button = from;
    for (const { dataset, firstChild } of items) {
      if (dataset.on) firstChild.data = dataset.do in from.dataset ? dataset.on : dataset.off;
    }
    menu.showPopover({ source: from });
    const { left, top, bottom } = from.getBoundingClientRect();
    const { offsetWidth, offsetHeight } = menu;
    menu.style.left = `${Math.max(GAP, Math.min(left, innerWidth - offsetWidth - GAP))}px`;
    menu.style.top = `${bottom + offsetHeight + GAP < innerHeight ? bottom + GAP : top - GAP - offsetHeight}px`;
    item.focus();
  };

  // It is told at once, not with the event that follows: a refresh may come between.
  menu.addEventListener("beforetoggle", ({ newState }) => {
    button.setAttribute("aria-expanded", newState === "open");
    opened(newState === "open");
  });
  document.addEventListener("click", ({ target }) => {
    const from = target.closest("[data-menu]");
    const item = target.closest("[data-do]");
    if (item) {
      menu.hidePopover();
      chosen(item.dataset.do, button);
    } else if (from && menu.matches(":popover-open")) menu.hidePopover();
    else if (from) open(from, items[0]);
  });
  document.addEventListener("keydown", (event) => {
    const from = event.target.closest("[data-menu]");
    const at = items.indexOf(event.target);
    const { key } = event;
    if (at >= 0 && key === "Tab") return menu.hidePopover();
    const to = { ArrowDown: at + 1, ArrowUp: from ? -1 : at - 1, Home: 0, End: -1 }[key];
    if (to === undefined || (at < 0 && !(from && key.startsWith("Arrow")))) return;
    event.preventDefault();
    const item = items.at(to % items.length);
    if (from) open(from, item);
    else item.focus();
  });
  list.addEventListener("scroll", () => menu.hidePopover());
}
