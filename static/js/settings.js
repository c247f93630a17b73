// The settings page: the theme choice, kept in this browser.
import { keep, kept } from "./store.js";

const chosen = kept("theme");
for (const radio of document.querySelectorAll("#theme input")) {
  radio.checked = radio.value === chosen;
  radio.addEventListener("change", () => {
    keep("theme", radio.value);
    if (radio.value) document.documentElement.dataset.theme = radio.value;
    else delete document.documentElement.dataset.theme;
  });
}
