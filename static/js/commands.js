// The composer's commands: a list that opens at "/", filters as one types, and is driven by the box's keys.
export function startCommands(box, clear, say) {
  const list = document.getElementById("commands");
  const shown = () => [...list.children].filter((option) => !option.hidden);
  const active = () => list.querySelector("[aria-selected=true]");

  const mark = (option) => {
    for (const other of list.children) other.ariaSelected = String(other === option);
    option?.scrollIntoView({ block: "nearest" });
    box.setAttribute("aria-activedescendant", option?.id ?? "");
  };
  const open = (is) => {
    list.hidden = !is;
    mark(is ? shown()[0] : null);
  };
  // A command presses what the page has for it, the last one where there are several.
  const pick = (option) => {
    open(false);
    clear();
    const button = [...document.querySelectorAll(option.dataset.press)].at(-1);
    if (button) button.click();
    else say(option.dataset.none);
  };
  const KEYS = {
    ArrowDown: () => mark(shown()[shown().indexOf(active()) + 1] ?? shown()[0]),
    ArrowUp: () => mark(shown().at(shown().indexOf(active()) - 1)),
    Escape: () => open(false),
    Enter: () => pick(active()),
    Tab: () => pick(active()),
  };

  // The box keeps the focus and its caret.
  list.addEventListener("mousedown", (event) => event.preventDefault());
  list.addEventListener("click", ({ target }) => target !== list && pick(target.closest("li")));
  return {
    typed(text) {
      for (const option of list.children) option.hidden = !text || !option.textContent.trim().startsWith(text);
      open(shown().length > 0);
    },
    // Whether the key was the list's.
    key(event) {
      const act = !list.hidden && !event.shiftKey && KEYS[event.key];
      if (!act) return false;
      event.preventDefault();
      act();
      return true;
    },
  };
}
