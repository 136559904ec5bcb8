/** Colours, sizes and defaults of the whole UI. */
import { createTheme, defaultVariantColorsResolver, type MantineColorsTuple, rem } from "@mantine/core";

/** The accent is ink: every other colour means the state of something. */
const ink: MantineColorsTuple = ["#f4f5f7", "#e8eaee", "#d3d7de", "#b0b6c1", "#868e9c", "#656d7b", "#4b525e", "#363c46", "#262a32", "#181b20"];

/** Mantine's greys of the dark theme, from text to the darkest surface. */
const dark: MantineColorsTuple = ["#e3e6eb", "#b9c0ca", "#99a2b0", "#6d7684", "#464d59", "#333943", "#22262d", "#16191e", "#101216", "#0b0d0f"];

/** The library makes the head of a dialog a header element, which counts as a second banner of the page. */
const dialogHeader = { header: { role: "presentation" } };

/** What is hard to undo is a red outline, and filled in the dialog that asks for it. */
const dangerOutline = { background: "transparent", color: "var(--bad)", hover: "var(--bad-soft)", hoverColor: "var(--bad)", border: "1px solid var(--bad)" };
const dangerFilled = {
  background: "var(--danger)",
  color: "#ffffff",
  hover: "color-mix(in srgb, var(--danger), #000000 12%)",
  hoverColor: "#ffffff",
  border: "1px solid transparent",
};

export const theme = createTheme({
  primaryColor: "ink",
  primaryShade: { light: 9, dark: 1 },
  colors: { ink, dark },
  autoContrast: true,
  // The library chooses the text of a filled button by the light theme's shade: white on almost white in the dark one.
  variantColorResolver: (input) => {
    const colors = defaultVariantColorsResolver(input);
    if (input.color === "red") return { ...colors, ...(input.variant === "filled" ? dangerFilled : dangerOutline) };
    return input.variant === "filled" && (input.color ?? "ink") === "ink" ? { ...colors, color: "var(--accent-text)" } : colors;
  },
  fontFamily: 'Inter, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif',
  fontFamilyMonospace: '"JetBrains Mono", ui-monospace, "SF Mono", Menlo, Consolas, monospace',
  fontSizes: { xs: rem(12), sm: rem(13), md: rem(14), lg: rem(16), xl: rem(20) },
  lineHeights: { xs: "1.4", sm: "1.45", md: "1.5", lg: "1.5", xl: "1.4" },
  headings: {
    fontWeight: "600",
    sizes: {
      h1: { fontSize: rem(20), lineHeight: "1.3" },
      h2: { fontSize: rem(14), lineHeight: "1.4" },
      h3: { fontSize: rem(13), lineHeight: "1.4" },
    },
  },
  radius: { xs: rem(3), sm: rem(4), md: rem(6), lg: rem(8), xl: rem(12) },
  defaultRadius: "md",
  cursorType: "pointer",
  focusRing: "auto",
  components: {
    Button: { defaultProps: { size: "xs" }, styles: { root: { fontWeight: 600, fontSize: rem(13) } } },
    ActionIcon: { defaultProps: { variant: "subtle", color: "gray" } },
    InputWrapper: { styles: { description: { fontSize: rem(12) }, error: { fontSize: rem(12) } } },
    TextInput: { defaultProps: { size: "xs" } },
    NumberInput: { defaultProps: { size: "xs" } },
    Textarea: { defaultProps: { size: "xs" } },
    Select: { defaultProps: { size: "xs", checkIconPosition: "right" } },
    MultiSelect: { defaultProps: { size: "xs" } },
    Checkbox: { defaultProps: { size: "xs", iconColor: "var(--accent-text)" } },
    Switch: { defaultProps: { size: "xs" } },
    SegmentedControl: { defaultProps: { size: "xs" } },
    // The placeholder that the library focuses at first is no item of a menu, and a screen reader reads nothing there.
    // Outside its parent it would be outside of all landmarks. Menus in tables, whose frames cut off what is wider, are nevertheless there.
    Menu: { defaultProps: { shadow: "md", withinPortal: false, withInitialFocusPlaceholder: false } },
    Tooltip: { defaultProps: { openDelay: 250, multiline: true, maw: 360, fz: "xs", events: { hover: true, focus: true, touch: true } } },
    Modal: { defaultProps: { radius: "lg", overlayProps: { backgroundOpacity: 0.4 }, transitionProps: { duration: 150 }, attributes: dialogHeader } },
    Drawer: { defaultProps: { attributes: dialogHeader } },
  },
});
