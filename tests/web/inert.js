() => {
  // What stands in a page that has no business there.
  const all = [...document.querySelectorAll("*")];
  const addresses = all.flatMap((e) => ["href", "action", "hx-get", "hx-post"].map((name) => e.getAttribute(name)));
  const ours = (e) => !e.closest("main") || e.closest(".plot");
  return {
    pwned: window.pwned ?? null,
    scripts: document.querySelectorAll("script:not([src^='/static/'])").length,
    frames: document.querySelectorAll("iframe, object, embed, base, main style").length,
    pictures: document.querySelectorAll("main img").length,
    links: addresses.filter((value) => value !== null && !/^[/?#]/.test(value)),
    handlers: all.filter((e) => !ours(e)).flatMap((e) => [...e.attributes])
      .filter((attribute) => /^(on|hx-on|style$|srcdoc)/.test(attribute.name)).length,
  };
}
