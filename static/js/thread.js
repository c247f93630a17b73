// What a person does with the thread: copy, link, unfold. Says so when something was done or did not work.
const DONE_MS = 1500;

export function startThread(chat, follow) {
  const log = document.getElementById("log");
  const say = document.getElementById("say");
  let connections = 0;
  let known = null;

  async function copied(button, text, html) {
    try {
      await copy(text, html);
    } catch {
      problem(button, say.dataset.notCopied);
      return false;
    }
    say.textContent = say.dataset.copied;
    button.classList.add("done");
    setTimeout(() => button.classList.remove("done"), DONE_MS);
    return true;
  }

  function problem(element, text) {
    const row = element.closest?.(".actions, .more, .older");
    if (row) row.dataset.problem = text;
    say.textContent = text;
  }

  async function copyCode(button) {
    const code = button.parentElement.querySelector("code");
    if (!(await copied(button, code.textContent))) getSelection().selectAllChildren(code);
  }

  function fold(code) {
    code.toggleAttribute("data-all");
    // A block that was folded from its end is above the reader now.
    if (!code.hasAttribute("data-all")) code.scrollIntoView({ block: "nearest" });
  }

  log.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    delete button.closest(".actions, .more, .older")?.dataset.problem;
    const message = button.closest(".msg");
    const { copy: source, link } = button.dataset;
    if (button.matches(".copy")) copyCode(button);
    else if (button.matches(".fold")) fold(button.parentElement);
    else if (link) copied(button, `${location.origin}${location.pathname}#${link}`);
    else if (source) copied(button, fetched(source), rich(message));
    else if (source === "") copied(button, message.querySelector(".bubble")?.textContent ?? "");
  });

  for (const name of ["htmx:response:error", "htmx:error"]) {
    log.addEventListener(name, (event) => problem(event.target, say.dataset.notDone));
  }

  chat.addEventListener("htmx:ws:after:connection", () => (connections += 1));

  // A long block is folded when it closes, but not under the eyes of who reads it.
  chat.addEventListener("htmx:ws:before:message:incoming", (event) => {
    const folds = event.detail.message.data.includes("code long") && !follow.follows();
    known = folds ? new Set(log.querySelectorAll(".code.long")) : null;
  });
  chat.addEventListener("htmx:ws:after:message:incoming", (event) => {
    if (known) for (const code of log.querySelectorAll(".code.long")) if (!known.has(code)) code.dataset.all = "";
    const { data } = event.detail.message;
    if (data.includes('id=\\"m-')) delete log.dataset.caught;
    else if (connections > 1 && data.startsWith('{"kind":"caught_up"')) log.dataset.caught = say.dataset.caughtUp;
  });
}

async function fetched(address) {
  const answer = await fetch(address);
  // A redirect leads to the login page.
  if (!answer.ok || answer.redirected) throw new Error(answer.status);
  return answer.text();
}

function rich(reply) {
  return Array.from(reply.querySelectorAll(":scope > .md"), (block) => {
    const clone = block.cloneNode(true);
    for (const button of clone.querySelectorAll("button")) button.remove();
    for (const element of clone.querySelectorAll("*")) {
      for (const { name, value } of [...element.attributes]) {
        if (!["href", "start"].includes(name) || value.startsWith("#")) element.removeAttribute(name);
      }
    }
    return clone.innerHTML;
  }).join("\n");
}

// The text may still be on its way: a browser lets us write only as long as it remembers the click.
async function copy(text, html) {
  const kinds = { "text/plain": text, ...(html && { "text/html": html }) };
  if (navigator.clipboard && window.ClipboardItem) {
    const blob = async ([type, value]) => new Blob([await value], { type });
    const entries = Object.entries(kinds).map((entry) => [entry[0], blob(entry)]);
    await navigator.clipboard.write([new ClipboardItem(Object.fromEntries(entries))]);
    return;
  }
  kinds["text/plain"] = await text;
  const fill = (event) => {
    event.preventDefault();
    for (const [type, value] of Object.entries(kinds)) event.clipboardData.setData(type, value);
  };
  document.addEventListener("copy", fill, { once: true });
  if (!document.execCommand("copy")) throw new Error("copy");
}
