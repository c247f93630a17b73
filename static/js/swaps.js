// The swaps of our frames: late targets, and put / ensure / drop, which make a replayed change harmless.
htmx.registerExtension("branchline", {
  htmx_before_swap(_element, { tasks }) {
    // A selector in place of the element is looked up when the change is made, after the changes before it.
    for (const task of tasks) if (task.swapSpec?.into) task.target = task.swapSpec.into;
  },

  handle_swap(style, target, fragment, spec) {
    if (style === "drop") {
      for (const element of document.querySelectorAll(spec.into)) element.remove();
      return [];
    }
    if (style !== "put" && style !== "ensure") return false;
    const added = [];
    for (const element of [...fragment.children]) {
      const known = element.id && document.getElementById(element.id);
      if (known && style === "ensure") continue;
      if (known) known.replaceWith(element);
      else target.append(element);
      added.push(element);
    }
    return added;
  },
});
