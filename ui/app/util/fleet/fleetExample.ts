/** The initial text of a new fleet. It is short: omitted keys have defaults, which its comments name. */
export function fleetExample(version: string | undefined): string {
  return `# Keys that are commented out show their defaults.
apiVersion: muster.dev/v1alpha2
kind: Fleet
metadata:
  name: web
  labels: { team: web }

spec:
  # The keys up to strategy start a rollout when they change.

  # The agents: those that match every key.
  selector:
    policies: [default]
    # all: true               # every agent
    # kuery: 'tags: prod and not status: error'
    # labels: { site: [fra, ams] }

  agent: { version: ${version ?? "1.1.0"} }      # the agents themselves
  # components:               # then these, in this order
  #   - { name: web, version: 2.4.0 }
  # configuration:
  #   variables: { web: { workers: "4" } }

  strategy:
    kind: canary              # rolling, canary, rings, all_at_once, lockstep
    canary: { size: 1, approval: true }
    batch_percent: 25

  # The keys from here on take effect in the rollout under way.
  failure: { count: 3 }
  health: { wait: 10m }
  # limits: { max_parallel: 500 }
  # pace: { soak: 30m }
  # paused: true              # pauses the rollout under way, and starts none
`;
}
