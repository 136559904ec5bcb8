import { Anchor, type AnchorProps } from "@mantine/core";
import { createLink } from "@tanstack/react-router";
import type { AnchorHTMLAttributes, Ref } from "react";

interface Props extends Omit<AnchorHTMLAttributes<HTMLAnchorElement>, keyof AnchorProps>, AnchorProps {
  ref?: Ref<HTMLAnchorElement>;
}

/** A link to a page of this console, with its address checked by the compiler. */
export const TextLink = createLink(function TextAnchor(props: Props) {
  return <Anchor {...props} />;
});
