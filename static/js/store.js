// Small things kept in this browser. Storage may be full or closed: then nothing is kept.
export function kept(name) {
  try {
    return localStorage.getItem(`branchline.${name}`) ?? "";
  } catch {
    return "";
  }
}

export function keep(name, value) {
  try {
    if (value) localStorage.setItem(`branchline.${name}`, value);
    else localStorage.removeItem(`branchline.${name}`);
  } catch {
    // As said above.
  }
}
