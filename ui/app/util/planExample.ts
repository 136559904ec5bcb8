/** The plan the editor begins with. It is short on purpose: what is left out has a default that is said here. */
export function planExample(version: string | undefined): string {
  return `# What is commented out shows its default.
name: Move everything to ${version ?? "1.1.0"}
# description: why, and what to look at

version: ${version ?? "1.1.0"}
# source_version: 1.0.0    # only agents that run this; default: any
# profile: edge            # an upgrade manifest says version,
# upgrade_id: 2026-11      # artifacts and migration instead

# Which agents. Every part given must match.
select:
  all: true                # the whole fleet, said on purpose
  # kuery: 'agent.version < 1.1.0 and not status: error'
  # policies: [default]
  # labels: { os: [linux], site: [fra, ams] }
  # exclude: { "tag:stateful": ["true"] }
late_joiners: ignore       # or join: agents that match later come too

strategy:
  kind: canary             # rolling, canary, rings, all_at_once
  canary:
    size: 2                # or percent
    pick: stratified       # or random
    # over: [os, arch, version]
    approval: true         # somebody approves the rest
  batch_percent: 25        # or batch_size; default 10 %

limits:
  max_parallel: 500        # at one time
  # per: [{ label: site, max: 10 }]

failure:
  count: 3                 # stops at this many
  # percent: 5             # or above this share of those attempted
  # retries: 0             # of targets that failed without harm

health:
  wait: 10m                # an agent is watched for so long
  # stale_after: 5m
  # max_crashes: 3

pace:
  # soak: 30m              # between batches
  # pause_on_success: true # somebody resumes after each batch
  # windows: [{ days: [mon, tue], from: "22:00", to: "04:00", zone: Europe/Berlin }]
  # emergency: true        # no soak, windows, freezes, observation
  wait_for: 168h           # the longest any wait may last

# migration:
#   type: breaking         # none, compatible, breaking
#   recovery_plan: what to do on a host that cannot go back
#   acknowledge_state_risk: true
`;
}
