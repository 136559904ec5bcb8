// Command oldwatcher replaces muster-watcher in a package: the watcher of a release that
// does not support today's format of the upgrade marker. It reports this when asked, and
// refuses to watch with such a marker.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// understands is the newest marker format that this release supports.
const understands = handoff.MarkerVersion - 1

func main() {
	top := flag.String("top", "/opt/muster", "the `folder` the agent is installed in")
	markerVersion := flag.Bool("marker-version", false, "print the version of the upgrade marker this watcher understands, and exit")
	flag.Parse()
	if *markerVersion {
		fmt.Println(understands)
		return
	}
	if err := watch(*top); err != nil {
		fmt.Fprintln(os.Stderr, "muster-watcher:", err)
		os.Exit(1)
	}
}

func watch(top string) error {
	var m json.RawMessage
	err := disk.ReadRecord(disk.OS{}, "upgrade marker", layout.Path(top, layout.MarkerFile), "marker", understands, &m)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Println("nothing to watch")
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("a marker of format %d: no agent of this test writes one", understands)
}
