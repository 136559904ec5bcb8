package process

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/host/disk"
)

// Files and folders in the component's folder.
const (
	recordFile   = "process"
	outputFile   = "output.log"
	temporaryDir = "tmp"
)

const (
	opRecord      = "process record"
	recordKind    = "process"
	recordVersion = 1
)

// record is what one agent leaves to the next. It is written before a process is started
// and after, so that whatever runs is found again.
type record struct {
	// Wanted means that the component is to run: an agent that starts starts it.
	Wanted bool `json:"wanted"`
	// Run is unique for each start that was asked for, and in the environment of all
	// processes that come from it.
	Run string `json:"run,omitempty"`
	// Home is the home of the version that was started.
	Home string `json:"home,omitempty"`
	// Group is the folder of the control group, empty if there is none.
	Group    string    `json:"group,omitempty"`
	Process  *identity `json:"process,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Restarts int       `json:"restarts,omitempty"`
}

// identity identifies a process for as long as the host's file system exists: a process id
// is used again, also after the next boot.
type identity struct {
	PID  int    `json:"pid"`
	Boot string `json:"boot"`
	// Start is when the process was started, in a unit of the system's.
	Start string `json:"start"`
}

func (a *Adapter) readRecord(r *runtime.Release) (record, error) {
	rec, err := disk.FindRecord[record](a.o.Disk, opRecord, filepath.Join(r.Dir, recordFile), recordKind, recordVersion)
	if errors.Is(err, disk.ErrDamaged) {
		// What runs is then found only by its control group.
		a.o.Log.Warn("the record of a component's process is damaged and is not used", "component", r.Name, "error", err)
		return record{}, nil
	}
	if err != nil || rec == nil {
		return record{}, err
	}
	return *rec, nil
}

func (a *Adapter) writeRecord(r *runtime.Release, rec record) error {
	return disk.WriteRecord(a.o.Disk, opRecord, filepath.Join(r.Dir, recordFile), recordKind, recordVersion, rec)
}
