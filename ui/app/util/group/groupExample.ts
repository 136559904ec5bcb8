/** The initial plan of a new group: the command line's example, shortened. */
export function groupExample(version: string | undefined): string {
  const v = version ?? "1.1.0";
  return `# Keys that are commented out show their defaults.
name: Release ${v}
# description: why, and what to look at

# What happens when a member fails. It is required: there is no default.
#   partial_ok    what is done stays, and no more is started
#   rollback_all  the member and all before it are rolled back,
#                 the last one first
#   manual        the group pauses, and an operator resumes, skips
#                 or rolls back
failure_policy: rollback_all

# The version of each member, by name.
desired_versions:
  db: ${v}
  web: ${v}

# The members in the order of their upgrades: a member begins when
# the one before it is done.
members:
  - name: db
    soak: 1h              # how long the group waits after it
    plan:                 # its rollout, without version
      # component: db     # default: the agents themselves
      select: { policies: [db] }
      strategy: { kind: canary, canary: { size: 1 } }
  - name: web
    plan:
      select: { policies: [web] }
      strategy: { kind: rolling, batch_percent: 10 }
      failure: { percent: 5 }

# accept_drift: false     # true: later members need not be as previewed
`;
}
