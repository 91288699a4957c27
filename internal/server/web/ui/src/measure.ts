// How wide texts are drawn.

let context: CanvasRenderingContext2D | null | undefined;

/** textWidth measures a text in the font of the pages; without a canvas, as in unit tests, it counts characters. */
export function textWidth(text: string, size: number): number {
  if (context === undefined) context = typeof document === 'undefined' ? null : document.createElement('canvas').getContext('2d');
  if (!context) return text.length * size * 0.63;
  context.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  return context.measureText(text).width;
}
