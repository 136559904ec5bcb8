import { Anchor, type AnchorProps } from "@mantine/core";
import { createLink } from "@tanstack/react-router";
import type { AnchorHTMLAttributes, Ref } from "react";

interface Props extends Omit<AnchorHTMLAttributes<HTMLAnchorElement>, keyof AnchorProps>, AnchorProps {
  ref?: Ref<HTMLAnchorElement>;
}

/** A link to a page of this UI; the compiler checks its address. */
export const TextLink = createLink(function TextAnchor(props: Props) {
  return <Anchor {...props} />;
});
