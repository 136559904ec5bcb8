/** Colours, sizes and defaults of the whole UI. */
import { createTheme, rem, type MantineColorsTuple } from "@mantine/core";

/**
 * A violet that no status uses, so that buttons never look like a state. White on the sixth shade,
 * which fills buttons in dark mode, has a contrast of 4.6:1.
 */
const muster: MantineColorsTuple = [
  "#f4f2fc", "#e6e1f7", "#cbc1ee", "#ab9be3", "#9180d9", "#7865cc", "#6a55c2", "#5842ad", "#4a3796", "#3c2d7c",
];

/** Cool greys: cards are one step above the page, the page is one step above black. */
const dark: MantineColorsTuple = [
  "#dde2ea", "#b6bfcc", "#98a3b3", "#6f7b8c", "#475161", "#343d4a", "#252c37", "#181d25", "#12161c", "#0d1014",
];

export const theme = createTheme({
  primaryColor: "muster",
  primaryShade: { light: 7, dark: 5 },
  colors: { muster, dark },
  autoContrast: false,
  fontFamily: 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif',
  fontFamilyMonospace: 'ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "Liberation Mono", monospace',
  fontSizes: { xs: rem(12), sm: rem(13), md: rem(14), lg: rem(16), xl: rem(20) },
  headings: {
    fontWeight: "600",
    sizes: {
      h1: { fontSize: rem(22), lineHeight: "1.3" },
      h2: { fontSize: rem(16), lineHeight: "1.4" },
      h3: { fontSize: rem(14), lineHeight: "1.4" },
    },
  },
  defaultRadius: "md",
  cursorType: "pointer",
  focusRing: "auto",
  components: {
    Button: { defaultProps: { size: "sm" } },
    TextInput: { defaultProps: { size: "sm" } },
    Select: { defaultProps: { size: "sm", checkIconPosition: "right" } },
    Tooltip: { defaultProps: { withArrow: true, openDelay: 250, multiline: true, maw: 360, events: { hover: true, focus: true, touch: true } } },
    Modal: { defaultProps: { radius: "lg", overlayProps: { backgroundOpacity: 0.45, blur: 2 } } },
  },
});
