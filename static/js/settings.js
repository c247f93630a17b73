// The settings page: what is kept in this browser, in effect at once.
import { keep, kept } from "./store.js";

const said = (part, word) => {
  const line = part.closest("section").querySelector(".said");
  line.textContent = line.dataset[word] ?? "";
  line.classList.toggle("refused", word !== "saved");
};

for (const group of document.querySelectorAll("[data-keep]")) {
  const name = group.dataset.keep;
  for (const radio of group.querySelectorAll("input")) {
    radio.checked = radio.value === kept(name);
    radio.addEventListener("change", () => {
      keep(name, radio.value);
      if (radio.value) document.documentElement.dataset[name] = radio.value;
      else delete document.documentElement.dataset[name];
      said(group, "saved");
    });
  }
}

const notify = document.getElementById("notify");
// Plain http outside this machine has no notifications.
const able = isSecureContext && "Notification" in window;
for (const box of notify.querySelectorAll("input")) {
  box.checked = able && Notification.permission === "granted" && kept(box.name) === "1";
  box.disabled = !able;
  box.addEventListener("change", async () => {
    const allowed = !box.checked || (await Notification.requestPermission()) === "granted";
    if (!allowed) box.checked = false;
    keep(box.name, box.checked ? "1" : "");
    said(notify, allowed ? "saved" : "refused");
  });
}
if (!able) said(notify, "none");
else if (Notification.permission === "denied") said(notify, "refused");
