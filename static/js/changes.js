// What a person does with a conversation: it is asked for here; the server answers with the line in the toast.
const SHOWN_MS = 12_000;

export function startChanges(chat, list) {
  const toast = document.getElementById("toast");
  const [{ value: csrfmiddlewaretoken }] = document.getElementById("new").elements;
  let timer = 0;
  let failed = false;

  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(() => (toast.matches(":hover, :focus-within") ? wait() : toast.replaceChildren()), SHOWN_MS);
  };
  const fail = ({ detail }) => {
    failed = true;
    // The server may have said it better.
    if (!detail.ctx.text?.includes("<hx-partial")) document.getElementById("say").textContent = toast.textContent = toast.dataset.failed;
  };
  const post = async (id, what, values) => {
    values = { csrfmiddlewaretoken, here: chat.dataset.conversation, ...values };
    await htmx.ajax("POST", `/c/${id}/${what}/`, { source: toast, swap: "none", values });
    return !failed;
  };

  function rename(button) {
    const { menu: id, title } = button.dataset;
    const host = button.closest(".item") ?? chat.querySelector(".title");
    const input = document.createElement("input");
    Object.assign(input, { className: "rename", value: title, maxLength: 200, dir: "auto", ariaLabel: toast.dataset.name });
    const end = (focus) => {
      // Going away is told as a blur, which must not save.
      input.readOnly = true;
      input.remove();
      if (focus) (host.querySelector(".row") ?? button).focus();
      list.hold(false);
    };
    const save = async (focus) => {
      if (input.readOnly) return;
      input.readOnly = true;
      if (input.value === title || (await post(id, "change", { title: input.value }))) end(focus);
      else input.readOnly = false;
    };
    input.addEventListener("keydown", (event) => {
      // 229: a key of an input method that some browsers report after its composition has ended.
      if (event.isComposing || event.keyCode === 229) return;
      event.stopPropagation();
      if (event.key === "Enter") save(true);
      else if (event.key === "Escape") end(true);
    });
    // Another window in front is no end of typing.
    input.addEventListener("blur", () => document.hasFocus() && save(false));
    list.hold(true);
    host.append(input);
    input.select();
  }

  new MutationObserver(wait).observe(toast, { childList: true });
  wait();
  toast.addEventListener("htmx:before:request", () => (failed = false));
  for (const problem of ["htmx:error", "htmx:response:error"]) toast.addEventListener(problem, fail);
  // Not when all is over: then the form that asked is gone.
  toast.addEventListener("htmx:before:swap", ({ target }) => failed || list.refresh(`row-${target.dataset.row}`));
  toast.addEventListener("click", ({ target }) => target.closest("#toast-close") && toast.replaceChildren());

  return {
    undo: () => document.getElementById("undo")?.click(),
    act(what, button) {
      const { menu: id } = button.dataset;
      if (what === "rename") return rename(button);
      if (what === "delete") return post(id, what);
      return post(id, "change", { [what]: what in button.dataset ? 0 : 1 });
    },
  };
}
