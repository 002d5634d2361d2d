// Returns what a reader of this page would miss: pale text, small targets (on a phone), no names.
(isPhone) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const isShown = (element) => element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })
    && element.getBoundingClientRect().right > 0;
  const over = (layers) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const layer of layers) { canvas.fillStyle = layer; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const ground = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) layers.unshift(getComputedStyle(each).backgroundColor);
    return layers;
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (element) => {
    const layers = ground(element);
    const pair = [over(layers), over([...layers, getComputedStyle(element).color])].map(light);
    return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
  };
  const name = (element) => `${element.tagName.toLowerCase()}.${element.className} ${element.textContent.trim().slice(0, 40)}`;
  const problems = [];
  for (const element of document.querySelectorAll("body *:not(svg *, option)")) {
    const has = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!has || !isShown(element)) continue;
    let opacity = 1;
    for (let each = element; each; each = each.parentElement) opacity *= getComputedStyle(each).opacity;
    const measured = ratio(element) * opacity;
    if (measured < 4.5) problems.push(`contrast ${measured.toFixed(2)}: ${name(element)}`);
  }
  const controls = "button, .button, input:not([type=hidden]), select, textarea, summary, nav a";
  for (const element of document.querySelectorAll(controls)) {
    if (!isShown(element)) continue;
    const named = element.getAttribute("aria-label") || element.labels?.length || element.textContent.trim();
    if (!named) problems.push(`no name: ${name(element)}`);
    const box = (element.type === "checkbox" ? element.closest("label") : element).getBoundingClientRect();
    if (isPhone && Math.min(box.width, box.height) < 40) problems.push(`${box.width} × ${box.height}: ${name(element)}`);
  }
  const [mains, headings] = [document.querySelectorAll("main"), document.querySelectorAll("h1")];
  if (mains.length !== 1 || headings.length !== 1) problems.push(`${mains.length} main, ${headings.length} h1`);
  if (document.documentElement.scrollWidth > innerWidth) problems.push(`${document.documentElement.scrollWidth} px wide`);
  return problems;
}
