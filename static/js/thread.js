// What a person does with the thread: copy, link, unfold. Says so when something was done or did not work.
import { tell } from "./failures.js";

const PLAIN = "text/plain";

export function startThread(chat, follow) {
  const log = document.getElementById("log");
  let connections = 0;

  const { copied, notCopied, caughtUp } = document.getElementById("say").dataset;
  const give = (types, content) => copy(types, content).then(() => tell(copied), () => tell(notCopied));
  const giveText = (text) => give([PLAIN], { [PLAIN]: text });

  function fold(code) {
    code.dataset.fold = code.dataset.fold === "open" ? "closed" : "open";
    // A block that was folded from its end is above the reader now.
    if (code.dataset.fold === "closed") code.scrollIntoView({ block: "nearest" });
  }

  function settle(state) {
    for (const code of log.querySelectorAll(".reply:last-child .long:not([data-fold])")) code.dataset.fold = state;
  }

  settle("closed");
  log.addEventListener("click", ({ target }) => {
    const button = target.closest("button");
    const { copy: source, link } = button?.dataset ?? {};
    if (button?.matches(".copy")) giveText(button.parentElement.querySelector("code").textContent);
    else if (button?.matches(".fold")) fold(button.parentElement);
    else if (link) giveText(`${location.origin}${location.pathname}#${link}`);
    else if (source) give([PLAIN, "text/html"], fetched(source));
    else if (source === "") giveText(button.closest(".msg").querySelector(".bubble")?.textContent ?? "");
  });

  chat.addEventListener("htmx:ws:after:connection", () => (connections += 1));

  return {
    heard({ kind, content }) {
      if (kind === "caught_up" && connections > 1) log.dataset.caught = caughtUp;
      else if (content?.includes('id="m-')) delete log.dataset.caught;
      // A long block is folded when it closes, but not under the eyes of who reads it.
      if (content?.includes("code long")) settle(follow.follows() ? "closed" : "open");
    },
  };
}

async function fetched(address) {
  const answer = await fetch(address);
  // A redirect leads to the login page.
  if (!answer.ok || answer.redirected) throw new Error(answer.status);
  return answer.json();
}

// What is to be copied may still be on its way: a browser lets us write only as long as it remembers the click.
async function copy(types, content) {
  if (navigator.clipboard && window.ClipboardItem) {
    const blob = async (type) => new Blob([(await content)[type]], { type });
    const item = new ClipboardItem(Object.fromEntries(types.map((type) => [type, blob(type)])));
    await navigator.clipboard.write([item]);
    return;
  }
  const known = await content;
  const fill = (event) => {
    event.preventDefault();
    for (const type of types) event.clipboardData.setData(type, known[type]);
  };
  document.addEventListener("copy", fill, { once: true });
  if (!document.execCommand("copy")) throw new Error("copy");
}
