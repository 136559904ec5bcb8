import type { ReactNode } from "react";
import type { AuditEntry } from "~/api/types";
import { TextLink } from "~/components/base/TextLink";
import { subjectOf } from "~/util/audit/audit";

/** A link to what an entry is about; nothing if no page shows that. */
export function SubjectLink({ entry, children }: { entry: AuditEntry; children: ReactNode }) {
  const s = subjectOf(entry);
  const look = { inherit: true, underline: "always" } as const;
  switch (s?.page) {
    case undefined:
      return null;
    case "rollout":
      return (
        <TextLink to="/rollouts/$rolloutId" params={{ rolloutId: s.id }} {...look}>
          {children}
        </TextLink>
      );
    case "group":
      return (
        <TextLink to="/groups/$groupId" params={{ groupId: s.id }} {...look}>
          {children}
        </TextLink>
      );
    case "policy":
      return (
        <TextLink to="/policies/$policyId" params={{ policyId: s.id }} {...look}>
          {children}
        </TextLink>
      );
    case "fleet":
      return (
        <TextLink to="/fleets/$name" params={{ name: s.id }} {...look}>
          {children}
        </TextLink>
      );
    case "agent":
      return (
        <TextLink to="/agents/$agentId" params={{ agentId: s.id }} {...look}>
          {children}
        </TextLink>
      );
    case "actions":
      return (
        <TextLink to="/activity" search={{ open: s.id }} {...look}>
          {children}
        </TextLink>
      );
    case "packages":
      return (
        <TextLink to="/packages" {...look}>
          {children}
        </TextLink>
      );
    case "webhooks":
      return (
        <TextLink to="/webhooks" {...look}>
          {children}
        </TextLink>
      );
    case "enroll":
      return (
        <TextLink to="/enroll" {...look}>
          {children}
        </TextLink>
      );
    case "admin-keys":
      return (
        <TextLink to="/admin-keys" {...look}>
          {children}
        </TextLink>
      );
    case "incidents":
      return (
        <TextLink to="/incidents" {...look}>
          {children}
        </TextLink>
      );
  }
}
