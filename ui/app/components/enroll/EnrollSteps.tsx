/** The three steps that bring a host into the fleet. */
import { Button, SegmentedControl, Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { enrollmentCommandsQuery } from "~/api/accessKeys";
import type { EnrollmentKey, Policy, Server } from "~/api/types";
import { Callout } from "~/components/base/Callout";
import { CopyBlock } from "~/components/base/CopyBlock";
import { TextLink } from "~/components/base/TextLink";
import { isPlatform, keyLabel, PLATFORMS, platformNote, platformWord } from "~/util/enroll/enroll";
import { Arrivals } from "./Arrivals";
import classes from "./Enroll.module.css";

interface Props {
  server: Server;
  policies: readonly Policy[];
  policyId: string;
  /** The keys of the policy whose token the server can show. */
  keys: readonly EnrollmentKey[];
  chosen?: EnrollmentKey;
  platform?: string;
  onChange: (search: { policy?: string; key?: string; platform?: string }) => void;
  onCreate: () => void;
}

export function EnrollSteps({ server, policies, policyId, keys, chosen, platform: given, onChange, onCreate }: Props) {
  const platform = isPlatform(given) ? given : PLATFORMS[0];
  const commands = useQuery(enrollmentCommandsQuery);
  const shown = commands.data?.items.find((c) => c.platform === platform);
  const note = platformNote(platform);
  return (
    <ol className={classes.steps}>
      <li>
        <div className={classes.step}>
          <h2 className={classes.title}>Choose the policy and the key</h2>
          <div className={classes.fields}>
            <Select
              label="Policy"
              w={240}
              allowDeselect={false}
              searchable
              data={policies.map((p) => ({ value: p.id, label: p.name }))}
              value={policyId}
              onChange={(v) => onChange({ policy: v ?? undefined, key: undefined })}
            />
            <Select
              label="Key"
              w={240}
              allowDeselect={false}
              placeholder="none yet"
              disabled={keys.length === 0}
              data={keys.map((k) => ({ value: k.id, label: keyLabel(k) }))}
              value={chosen?.id ?? null}
              onChange={(v) => onChange({ key: v ?? undefined })}
            />
            <Button variant={keys.length === 0 ? "filled" : "default"} onClick={onCreate}>
              Create key…
            </Button>
          </div>
        </div>
      </li>
      <li>
        <div className={classes.step}>
          <h2 className={classes.title}>Choose what the host runs on</h2>
          <div>
            <SegmentedControl
              aria-label="Platform"
              data={PLATFORMS.map((p) => ({ value: p, label: platformWord[p] }))}
              value={platform}
              onChange={(v) => onChange({ platform: v })}
            />
          </div>
          {commands.isError ? <Callout kind="warning">{commands.error.message}</Callout> : null}
          {shown?.command && shown.file ? (
            <span>
              The host downloads <span className="mono">{shown.file}</span>, the newest agent for this platform, from this server.
            </span>
          ) : null}
          {shown?.problem ? (
            <Callout kind="warning">
              {shown.problem} See{" "}
              <TextLink to="/packages" inherit underline="always">
                Packages
              </TextLink>
              .
            </Callout>
          ) : null}
          {note ? <span className={classes.hint}>{note}</span> : null}
        </div>
      </li>
      <li>
        <div className={classes.step}>
          <h2 className={classes.title}>Run this on the host{platform === "windows-amd64" ? ", in PowerShell as administrator" : ", as root"}</h2>
          {chosen?.api_key && shown?.command ? (
            <CopyBlock label="Command that installs and enrols a host" text={shown.command.replaceAll(commands.data!.token_word, chosen.api_key)} />
          ) : null}
          {chosen?.api_key ? null : (
            <span className={classes.hint}>
              {chosen ? "The server cannot show the token of this key again. Create another key." : "Create a key first: its token is part of the command."}
            </span>
          )}
          {!server.trust_root ? (
            <Callout kind="warning" title="These hosts will refuse every upgrade">
              The command names nothing to trust, since no root is published.{" "}
              <TextLink to="/trust" inherit underline="always">
                Set up trust
              </TextLink>{" "}
              first.
            </Callout>
          ) : null}
          <span className={classes.hint}>
            It installs the agent as a service and enrols it. The host talks to no other server than this one (<span className="mono">--ca-pin</span>) and
            installs only what your publishers have signed. Whoever has the token can enrol hosts: revoke the key once they have enrolled.
          </span>
          {policyId ? <Arrivals key={policyId} policyId={policyId} /> : null}
        </div>
      </li>
    </ol>
  );
}
