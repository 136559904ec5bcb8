/** The initial plan of the editor. It is short: omitted keys have defaults, which its comments name. */
export function planExample(version: string | undefined): string {
  return `# Keys that are commented out show their defaults.
name: Move everything to ${version ?? "1.1.0"}
# description: why, and what to look at

# component: web          # a component of the agents; default: the agents themselves
version: ${version ?? "1.1.0"}
# source_version: 1.0.0    # only agents that run this version; default: any
# profile: edge            # or an upgrade manifest, which names version,
# upgrade_id: 2026-11      # artifacts and migration

# The agents to upgrade: those that match every key.
select:
  all: true                # the whole fleet
  # kuery: 'agent.version < 1.1.0 and not status: error'
  # policies: [default]
  # labels: { os: [linux], site: [fra, ams] }
  # exclude: { "tag:stateful": ["true"] }
# stage: ahead             # all load the version before the first is upgraded
late_joiners: ignore       # or join: also agents that match later

strategy:
  kind: canary             # rolling, canary, rings, all_at_once, lockstep
  canary:
    size: 2                # or percent
    pick: stratified       # or random
    # over: [os, arch, version]
    approval: true         # the rest waits for an approval
  batch_percent: 25        # or batch_size; default 10 %

limits:
  max_parallel: 500        # at one time
  # per: [{ label: site, max: 10 }]

failure:
  count: 3                 # pauses at this many failures
  # percent: 5             # or above this percentage of attempts
  # retries: 0             # retries of targets that failed without harm

health:
  wait: 10m                # how long an agent must stay healthy
  # stale_after: 5m
  # max_crashes: 3

pace:
  # soak: 30m              # between batches
  # pause_on_success: true # pause after each batch
  # windows: [{ days: [mon, tue], from: "22:00", to: "04:00", zone: Europe/Berlin }]
  # emergency: true        # skip soak, windows, freezes and observation
  wait_for: 168h           # how long any wait may last

# migration:
#   type: breaking         # none, compatible, breaking
#   recovery_plan: what to do on a host that cannot go back
#   acknowledge_state_risk: true
`;
}
