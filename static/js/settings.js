// The settings page: which notifications are wanted, kept in this browser, in effect at once.
import { keep, kept } from "./store.js";

const notify = document.getElementById("notify");
const line = notify.querySelector(".said");
// Plain http outside this machine has no notifications.
const able = isSecureContext && "Notification" in window;
const allowed = () => able && Notification.permission === "granted";

const say = (word) => {
  line.textContent = line.dataset[word];
  line.classList.toggle("refused", word !== "saved");
};

for (const box of notify.querySelectorAll("input")) {
  box.checked = allowed() && kept(box.name) === "1";
  box.disabled = !able;
  box.addEventListener("change", async () => {
    if (box.checked) await Notification.requestPermission();
    box.checked &&= allowed();
    keep(box.name, box.checked ? "1" : "");
    say(allowed() ? "saved" : "refused");
  });
}
if (!able) say("none");
else if (Notification.permission === "denied") say("refused");
