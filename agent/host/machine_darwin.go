package host

import (
	"context"
	"os/exec"
	"time"
)

// ioregFor bounds the reading of the registry of devices, which takes some milliseconds.
const ioregFor = 5 * time.Second

// machineID returns the UUID of the Mac's hardware, which Elastic's agents report too. The function
// of the system's library (gethostuuid) needs cgo, without which the agent is built.
func machineID() string {
	ctx, done := context.WithTimeout(context.Background(), ioregFor)
	defer done()
	out, err := exec.CommandContext(ctx, "/usr/sbin/ioreg", "-rd1", "-c", "IOPlatformExpertDevice").Output()
	if err != nil {
		return ""
	}
	return platformUUID(string(out))
}
