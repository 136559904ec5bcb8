package handoff

import (
	"os"
	"strconv"
	"strings"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
)

const opStops = "orderly stops"

// CountStop counts an orderly end of the agent, which a service manager or an operator has asked for. The
// agent calls it while it is watched, as the last thing before it ends. It is not durable: a watch that a
// power cut has interrupted begins again, and with it the count of the agent's exits.
func CountStop(d disk.Disk, top string) error {
	n := Stops(d, top) + 1
	f, err := d.OpenFile(opStops, layout.Path(top, layout.StopsFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write([]byte(strconv.Itoa(n) + "\n")); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// Stops returns how many orderly ends were counted on the host. What cannot be read counts as none: then
// the exits of the agent count as crashes.
func Stops(d disk.Disk, top string) int {
	text, err := d.ReadFile(opStops, layout.Path(top, layout.StopsFile))
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return max(0, n)
}
