// The dialog in which a visitor chooses (settings.js).

import { choose, chosen } from "./settings.js";

const at = (id) => document.getElementById(id);

export function prepareSettings() {
  show();
  at("settings-open").addEventListener("click", openSettings);
  at("key").addEventListener("change", ({ target }) => choose("key", target.value.trim()));
  at("size").addEventListener("change", ({ target }) => {
    choose("size", target.value);
    show();
  });
  at("denoise").addEventListener("change", ({ target }) => choose("denoise", target.checked ? "true" : ""));
}

export function openSettings() {
  if (!at("settings").open) at("settings").showModal();
  at("key").select();
}

function show() {
  at("key").value = chosen("key");
  at("size").value = chosen("size");
  at("denoise").checked = Boolean(chosen("denoise"));
  document.body.dataset.size = chosen("size");
}
