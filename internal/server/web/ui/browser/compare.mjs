// Small copies of screenshots, and how two differ. A browser does the work: it reads and writes pictures.

/** side is the side of a cell in pixels of the small copy; limit is by how much the mean of a channel may differ; few is how many cells may. */
const side = 4, limit = 30, few = 6;

/** Tool is a page in which pictures are drawn. */
export async function tool(browser) {
  const page = await browser.newPage();
  await page.addScriptTag({ content: `
    globalThis.picture = async (type, data) => { const i = new Image(); i.src = 'data:image/' + type + ';base64,' + data; await i.decode(); return i; };
    globalThis.canvas = (w, h) => Object.assign(document.createElement('canvas'), { width: w, height: h });
    globalThis.drawn = (i, w, h) => { const c = canvas(w, h), x = c.getContext('2d', { willReadFrequently: true }); x.imageSmoothingQuality = 'high'; x.drawImage(i, 0, 0, w, h); return c; };
    globalThis.half = (i) => [Math.round(i.naturalWidth / 2), Math.round(i.naturalHeight / 2)];
    globalThis.coded = (c, type, quality) => c.toDataURL('image/' + type, quality).split(',')[1];
  ` });
  return {
    /** small is a copy of a screenshot for the repository: half as large, as WebP. */
    small: async (png) => Buffer.from(await page.evaluate(async (data) => { const i = await picture('png', data); return coded(drawn(i, ...half(i)), 'webp', 0.78); }, png.toString('base64')), 'base64'),
    /** differs compares a screenshot with a stored copy: null, or why they differ, with a picture of where. */
    differs: async (png, webp, blank = null) => {
      const r = await page.evaluate(async ([a, b, side, limit, blank]) => {
        const now = await picture('png', a), was = await picture('webp', b), [w, h] = half(now);
        if (w !== was.naturalWidth || Math.abs(h - was.naturalHeight) > 1) return { size: `${w}x${h}, expected ${was.naturalWidth}x${was.naturalHeight}` };
        const pixels = (i) => { const c = drawn(i, w, h).getContext('2d'); if (blank && i === now) { c.fillStyle = '#888'; c.fillRect(...blank); } return c.getImageData(0, 0, w, h).data; };
        const x = pixels(now), y = pixels(was), out = canvas(w, h), o = out.getContext('2d');
        o.globalAlpha = 0.25; o.drawImage(now, 0, 0, w, h); o.globalAlpha = 1; o.fillStyle = '#f00';
        let cells = 0;
        for (let top = 0; top + side <= h; top += side) for (let left = 0; left + side <= w; left += side) {
          const d = [0, 0, 0];
          for (let j = 0; j < side; j++) for (let i = 0; i < side; i++) for (let k = 0; k < 3; k++) { const at = ((top + j) * w + left + i) * 4 + k; d[k] += x[at] - y[at]; }
          if (Math.max(...d.map(Math.abs)) > limit * side * side) { cells++; o.fillRect(left, top, side, side); }
        }
        return { cells, difference: coded(out, 'png') };
      }, [png.toString('base64'), webp.toString('base64'), side, limit, blank]);
      if (r.size) return { why: `it is ${r.size} pixels`, difference: null };
      return r.cells > few ? { why: `${r.cells} cells of ${side}x${side} pixels differ, expected at most ${few}`, difference: Buffer.from(r.difference, 'base64') } : null;
    },
    /** png is a stored copy in the form of screenshots. */
    png: async (webp) => Buffer.from(await page.evaluate(async (b) => { const i = await picture('webp', b); return coded(drawn(i, i.naturalWidth, i.naturalHeight), 'png'); }, webp.toString('base64')), 'base64'),
    close: () => page.close(),
  };
}
