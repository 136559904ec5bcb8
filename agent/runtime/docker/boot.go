package docker

import (
	"github.com/moby/moby/api/types/mount"

	"github.com/muster-fleet/muster/agent/runtime"
)

// startedTarget is where a container whose start is withheld at boot has the folder without which the engine
// cannot start it. Its programs do not need it.
const startedTarget = "/.muster-started"

// startedMount mounts that folder. A mount of this kind needs its source when the container is
// started, unlike one of Binds. No restart policy would do: on-failure takes the end of the host's
// power for a failure.
func startedMount(r *runtime.Release) mount.Mount {
	return mount.Mount{Type: mount.TypeBind, Source: r.StartedDir(), Target: startedTarget, ReadOnly: true}
}
