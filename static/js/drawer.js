// The drawer: a column beside the conversation, on a narrow screen a sheet over it.
const NARROW = matchMedia("(max-width: 1100px)");

export function startDrawer() {
  const drawer = document.getElementById("drawer");
  const opener = document.getElementById("files-button");
  const look = () => {
    // A question that is open stays as it is.
    if (drawer.open && !drawer.querySelector("details[open]")) htmx.trigger("#drawer-body", "refresh");
  };
  const open = () => {
    drawer.close();
    drawer.closedBy = NARROW.matches ? "any" : "none";
    if (NARROW.matches) drawer.showModal();
    else drawer.show();
    opener.ariaExpanded = "true";
    look();
  };

  opener.addEventListener("click", () => (drawer.open ? drawer.close() : open()));
  drawer.addEventListener("keydown", (event) => event.key === "Escape" && drawer.close());
  drawer.addEventListener("close", () => (opener.ariaExpanded = String(drawer.open)));
  drawer.addEventListener("toggle", look, true);
  NARROW.addEventListener("change", () => drawer.open && open());
  return { look };
}
