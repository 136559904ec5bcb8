/** One policy: its hosts' versions, its components, and its revisions. */
import { Button, Menu } from "@mantine/core";
import { IconChevronDown } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { policyQuery } from "~/api/policies";
import type { Policy } from "~/api/types";
import { CopyBlock } from "~/components/base/CopyBlock";
import { Facts, Line, LoadError, Loading, PageHead, Section } from "~/components/base/Page";
import { TextLink } from "~/components/base/TextLink";
import { Ago } from "~/components/base/Time";
import { PolicyComponents } from "~/components/policy/PolicyComponents";
import { CopyPolicyDialog, DeletePolicyDialog } from "~/components/policy/PolicyDialogs";
import { PolicyEditor } from "~/components/policy/PolicyEditor";
import { PolicyLocks } from "~/components/policy/PolicyLocks";
import { PolicyVersions } from "~/components/policy/PolicyVersions";
import { Revisions } from "~/components/policy/Revisions";
import { quoted } from "~/util/kql";
import { requiredText, secondsText, windowsText } from "~/util/policy/policy";
import { plural, shellQuote } from "~/util/words";
import classes from "./Admin.module.css";

const route = getRouteApi("/shell/policies/$policyId");
const crumbs = [{ to: "/policies", label: "Policies" }];

export function PolicyPage() {
  const { policyId } = route.useParams();
  const search = route.useSearch();
  const navigate = useNavigate({ from: "/policies/$policyId" });
  const policy = useQuery(policyQuery(policyId));
  const p = policy.data;
  if (!p) {
    return (
      <>
        <PageHead title="Policy" crumbs={crumbs} />
        {policy.isError ? <LoadError what={`The policy ${policyId}`} error={policy.error} onRetry={() => void policy.refetch()} /> : <Loading />}
      </>
    );
  }
  return (
    <>
      <Head policy={p} editing={search.edit ?? false} />
      {search.edit ? (
        <PolicyEditor policy={p} onClose={() => void navigate({ search: {} })} />
      ) : (
        <div className={classes.stack}>
          <PolicyLocks policyId={p.id} />
          <div className={classes.sides}>
            <Section title="Settings">
              <Facts
                rows={[
                  [
                    "Id",
                    <span key="id" className="mono">
                      {p.id}
                    </span>,
                  ],
                  ["Description", p.description],
                  ["Upgrades hosts to", requiredText(p) || "nothing: orders and rollouts upgrade its hosts"],
                  [
                    "Upgrade times",
                    p.required_versions?.length || p.upgrade_windows?.length ? (
                      <span key="when">
                        {windowsText(p) || "at any time"}; not during{" "}
                        <TextLink to="/guard-rails" inherit underline="always">
                          freezes
                        </TextLink>
                      </span>
                    ) : undefined,
                  ],
                  ["Inactive after", p.inactivity_timeout ? `${secondsText(p.inactivity_timeout)} without a check-in` : "never"],
                  ["Unenrolled after", p.unenroll_timeout ? `${secondsText(p.unenroll_timeout)} without a check-in` : "never"],
                  ["Managed", p.is_managed ? "yes, something else changes it" : "no"],
                  ["Protected", p.is_protected ? "yes, hosts need a token to uninstall" : "no"],
                ]}
              />
            </Section>
            <PolicyVersions policy={p} />
          </div>
          <Section title="Components" plain flush>
            {p.components?.length ? <PolicyComponents policy={p} /> : <p className={classes.note}>Its hosts run no components. “Edit policy” adds them.</p>}
          </Section>
          <Section title="Revisions" plain flush>
            <Revisions policy={p} search={search} />
          </Section>
          <Section title="The same from a file" plain flush>
            <div className={classes.tight}>
              <p className={classes.note}>
                Keep the components in a repository if a pipeline changes them. The file replaces all components that the policy has.
              </p>
              <CopyBlock
                label="Commands that change the components of this policy"
                text={`muster policies update --example > components.yaml\nmuster policies update ${shellQuote(p.id)} --components components.yaml\nmuster policies show ${shellQuote(p.id)} -o json`}
              />
            </div>
          </Section>
        </div>
      )}
    </>
  );
}

function Head({ policy: p, editing }: { policy: Policy; editing: boolean }) {
  const navigate = useNavigate({ from: "/policies/$policyId" });
  const [dialog, setDialog] = useState<"copy" | "delete" | null>(null);
  const badges = [p.is_default ? "default" : "", p.is_managed ? "managed" : "", p.is_protected ? "protected" : ""].filter(Boolean);
  return (
    <>
      <PageHead
        title={p.name}
        crumbs={crumbs}
        docs="start"
        badge={
          badges.length > 0 ? (
            <span className={classes.tags}>
              {badges.map((b) => (
                <span key={b} className={classes.tag}>
                  {b}
                </span>
              ))}
            </span>
          ) : null
        }
        sub={
          <Line>
            {[
              <TextLink key="hosts" to="/agents" search={{ policy: [p.id] }} inherit underline="always">
                {plural(p.agents, "host")}
              </TextLink>,
              `revision ${p.revision.toLocaleString()}`,
              <span key="when">
                changed <Ago at={p.updated_at} /> by {p.updated_by}
              </span>,
            ]}
          </Line>
        }
      >
        {editing ? null : (
          <>
            <Menu position="bottom-end" width={240}>
              <Menu.Target>
                <Button variant="default" rightSection={<IconChevronDown size={14} aria-hidden />}>
                  More
                </Button>
              </Menu.Target>
              <Menu.Dropdown>
                <Menu.Item onClick={() => void navigate({ to: "/rollouts/new", search: { kuery: `policy_id: ${quoted(p.id)}` } })}>
                  Roll out to its hosts…
                </Menu.Item>
                <Menu.Item onClick={() => void navigate({ to: "/enroll", search: { policy: p.id } })}>Enrol hosts into it…</Menu.Item>
                <Menu.Item onClick={() => setDialog("copy")}>Copy policy…</Menu.Item>
                <Menu.Item color="var(--bad)" onClick={() => setDialog("delete")}>
                  Delete policy…
                </Menu.Item>
              </Menu.Dropdown>
            </Menu>
            <Button onClick={() => void navigate({ search: { edit: true } })}>Edit policy</Button>
          </>
        )}
      </PageHead>
      {dialog === "copy" ? (
        <CopyPolicyDialog
          policy={p}
          onDone={(copy) => {
            setDialog(null);
            void navigate({ to: "/policies/$policyId", params: { policyId: copy.id }, search: {} });
          }}
          onClose={() => setDialog(null)}
        />
      ) : null}
      {dialog === "delete" ? (
        <DeletePolicyDialog policy={p} onDone={() => void navigate({ to: "/policies", search: {} })} onClose={() => setDialog(null)} />
      ) : null}
    </>
  );
}
