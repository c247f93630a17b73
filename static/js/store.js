// Small things kept in this browser. Storage may be full or closed; then they live as long as the page.
const memory = new Map();

export function kept(name) {
  try {
    return localStorage.getItem(`branchline.${name}`) ?? "";
  } catch {
    return memory.get(name) ?? "";
  }
}

export function keep(name, value) {
  try {
    if (value) localStorage.setItem(`branchline.${name}`, value);
    else localStorage.removeItem(`branchline.${name}`);
  } catch {
    memory.set(name, value);
  }
}
