// What a visitor has chosen, for this tab only: the key is a secret and leaves with it.

const NAMES = { key: "streamscribe.key", denoise: "streamscribe.denoise", size: "streamscribe.size" };

export function chosen(name) {
  return sessionStorage.getItem(NAMES[name]) ?? "";
}

export function choose(name, value) {
  if (value) sessionStorage.setItem(NAMES[name], value);
  else sessionStorage.removeItem(NAMES[name]);
}
