// The composer's commands: a list that opens at "/", filters as one types, and is driven by the box's keys.
const byId = (id) => document.getElementById(id);
const last = (selector) => [...document.querySelectorAll(selector)].at(-1);
const press = (element) => element && (element.click(), true);
const tell = (name) => document.dispatchEvent(new CustomEvent(`branchline:${name}`));

// Each says whether there was something to do.
const ACTIONS = {
  new: () => press(document.querySelector("[action$='/c/new/'] button")),
  retry: () => press(last("#log form:has([value='message.retry']) button")),
  stop: () => byId("run").dataset.run !== "idle" && press(document.querySelector(".stop")),
  model: () => press(byId("picker-button")),
  files: () => tell("files"),
  attach: () => press(byId("attach")),
  rename: () => press(last("#chat-menu button")) && press(last("#menu [data-do=rename]")),
  copy: () => press(last("#log .reply [data-copy]:not([data-copy=''])")),
  help: () => tell("help"),
};

export function startCommands(box, clear, say) {
  const list = byId("commands");
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
  const pick = (option) => {
    open(false);
    clear();
    if (!ACTIONS[option.dataset.command]()) say(option.dataset.none);
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
  list.addEventListener("click", (event) => event.target !== list && pick(event.target.closest("li")));
  return {
    typed(text) {
      for (const option of list.children) option.hidden = !text || !`/${option.dataset.command}`.startsWith(text);
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
