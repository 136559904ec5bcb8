/** Paints the cells of a grid: each look is drawn once, and its pixels are copied to its cells. */
import { GRID_GROUPS, type GridMark, groupLook } from "~/util/grid/gridClass";
import type { GridLayout } from "~/util/grid/gridLayout";

/** The variables of the theme that the grid is painted with. */
export const GRID_COLORS = [
  "--surface",
  "--sunken",
  "--line",
  "--line-strong",
  "--ok-fill",
  "--move-fill",
  "--watch-fill",
  "--wait-fill",
  "--bad-fill",
  "--bad-soft",
  "--away-fill",
  "--away",
  "--faint",
] as const;
type Colors = Record<(typeof GRID_COLORS)[number], string>;

/** Below this side there is no space for marks of lines; simpler shapes replace them. */
const SMALL = 8;
const FADED = 0.16;

/** Two looks for each group: a cell that the filter shows, and a faded one. */
export const lookOf = (code: number, faded: boolean) => code * 2 + (faded ? 1 : 0);

/** The pixels of each look, and the side of a cell with its gap, in pixels of the screen. */
export interface Sheet {
  looks: Uint32Array[];
  pitch: number;
}

/** sheetOf draws each look once. */
export function sheetOf({ cell, gap }: Pick<GridLayout, "cell" | "gap">, ratio: number, colors: Colors): Sheet {
  const pitch = Math.floor((cell + gap) * ratio); // rounded down: cells must not overlap at a ratio of 1.5
  const side = Math.round(cell * ratio);
  const image = document.createElement("canvas");
  image.width = image.height = pitch;
  const context = image.getContext("2d", { willReadFrequently: true })!;
  const looks: Uint32Array[] = [];
  GRID_GROUPS.forEach((group, code) => {
    for (const faded of [false, true]) {
      const { tone, mark } = groupLook[group];
      context.clearRect(0, 0, pitch, pitch);
      context.save();
      context.globalAlpha = faded ? FADED : 1;
      drawLook(context, { mark, fill: colors[`--${tone}-fill`], side, pitch, small: cell < SMALL, line: Math.max(1, Math.round(side / 7)) }, colors);
      context.restore();
      looks[lookOf(code, faded)] = new Uint32Array(context.getImageData(0, 0, pitch, pitch).data.buffer);
    }
  });
  return { looks, pitch };
}

interface Look {
  mark: GridMark;
  fill: string;
  side: number;
  pitch: number;
  small: boolean;
  line: number;
}

function drawLook(context: CanvasRenderingContext2D, { mark, fill, side, pitch, small, line }: Look, colors: Colors): void {
  const box = (color: string, size = side) => {
    context.fillStyle = color;
    context.beginPath();
    context.roundRect(0, 0, size, size, small ? 0 : Math.round(side / 6));
    context.fill();
  };
  const hole = Math.max(2, Math.round(side / 3));
  const middle = Math.round((side - hole) / 2);
  context.lineWidth = line;
  context.strokeStyle = colors["--surface"];
  switch (mark) {
    case "hollow":
      box(colors[small ? "--line" : "--line-strong"]);
      if (small) break;
      context.fillStyle = colors["--sunken"];
      context.fillRect(line, line, side - 2 * line, side - 2 * line);
      break;
    case "dot":
      box(fill);
      // Grey cells are too faint for a hole to be seen.
      context.fillStyle = colors[fill === colors["--away-fill"] ? "--away" : "--surface"];
      context.fillRect(middle, middle, hole, hole);
      break;
    case "bar":
      context.fillStyle = colors["--faint"];
      context.fillRect(small ? 0 : line, Math.round((side - line) / 2), small ? side : side - 2 * line, Math.max(line, Math.round(side / 6)));
      break;
    case "cross":
      // A small failed cell fills its gap too: it is the one to be found among thousands.
      box(fill, small ? pitch : side);
      if (small) {
        context.fillStyle = colors["--surface"];
        context.fillRect(Math.floor(pitch / 2) - Math.floor(hole / 4), Math.floor(pitch / 2) - Math.floor(hole / 4), Math.ceil(hole / 2), Math.ceil(hole / 2));
        break;
      }
      context.beginPath();
      for (const [from, to] of [
        [0.26, 0.74],
        [0.74, 0.26],
      ] as const) {
        context.moveTo(side * 0.26, side * from);
        context.lineTo(side * 0.74, side * to);
      }
      context.stroke();
      break;
    case "stripes":
      if (small) {
        box(colors["--bad-soft"]);
        context.fillStyle = fill;
        context.beginPath();
        context.moveTo(0, 0);
        context.lineTo(0, side);
        context.lineTo(side, side);
        context.fill();
        break;
      }
      box(fill);
      context.beginPath();
      context.roundRect(0, 0, side, side, Math.round(side / 6));
      context.clip();
      context.beginPath();
      for (const at of [0.55, 1.05, 1.55]) {
        context.moveTo(side * at, -line);
        context.lineTo(side * at - side - 2 * line, side + line);
      }
      context.stroke();
      break;
    case "none":
      box(fill);
      break;
  }
}

/** The pixels of the whole canvas. */
export function pictureOf(layout: GridLayout, ratio: number): ImageData {
  const pixels = (length: number) => Math.ceil((length + layout.gap) * ratio) + 1; // one more for rounding
  return new ImageData(pixels(layout.width), pixels(layout.height));
}

/**
 * paint copies the looks of those cells into the picture that differ from what was drawn before, or
 * of all cells, and returns how many these were. It copies pixels itself: drawing 10,000 images
 * takes a canvas without a graphics card some 70 ms.
 */
export function paint(picture: ImageData, { looks: sprites, pitch }: Sheet, layout: GridLayout, ratio: number, looks: Uint8Array, drawn?: Uint8Array): number {
  const pixels = new Uint32Array(picture.data.buffer);
  const step = layout.cell + layout.gap;
  let painted = 0;
  for (const column of layout.columns) {
    for (let i = 0; i < column.cells; i++) {
      const look = looks[column.firstCell + i]!;
      if (drawn && drawn[column.firstCell + i] === look) continue;
      const sprite = sprites[look]!;
      const x = Math.round((column.x + Math.floor(i / layout.rows) * step) * ratio);
      let to = Math.round((i % layout.rows) * step * ratio) * picture.width + x;
      for (let from = 0; from < sprite.length; to += picture.width - pitch) {
        for (const end = from + pitch; from < end; from++, to++) pixels[to] = sprite[from]!;
      }
      painted++;
    }
  }
  return painted;
}
