package selfupgrade

import (
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

const (
	recordFile   = "server-upgrade"
	recordKind   = "server-upgrade"
	recordFormat = 1
	op           = "server upgrade"
)

// Record is a server's own record of an upgrade, in its data folder. It is written before
// the server stops, before the schema changes and before the pointer moves, and read before
// the store is opened: a server that starts in the middle may find a store that only the
// other version can read.
type Record struct {
	Run  string `json:"run"`
	From string `json:"from"`
	To   string `json:"to"`
	// Phase is ServerStop, ServerMigrate on the one server that changes the schema, or
	// ServerSwitch when the schema is that of To.
	Phase fleet.ServerPhase `json:"phase"`
	// Failed is why this server could not change the schema.
	Failed string `json:"failed,omitempty"`
}

// Decided means that only the version To may run.
func (r Record) Decided() bool { return r.Run != "" && r.Phase == fleet.ServerSwitch }

// Records is the place of a server's record.
type Records struct {
	Disk disk.Disk
	Data string // folder
	Log  *slog.Logger
}

func (r Records) path() string { return filepath.Join(r.Data, recordFile) }

// Read returns the record, zero if there is none or it is damaged: then the store decides.
func (r Records) Read() (Record, error) {
	v, err := disk.FindRecord[Record](r.Disk, op, r.path(), recordKind, recordFormat)
	switch {
	case errors.Is(err, disk.ErrDamaged):
		r.Log.Warn("the server's record of an upgrade is damaged, and is ignored", "error", err)
		return Record{}, nil
	case err != nil || v == nil:
		return Record{}, err
	}
	return *v, nil
}

// Write makes the record durable.
func (r Records) Write(v Record) error {
	return disk.WriteRecord(r.Disk, op, r.path(), recordKind, recordFormat, v)
}

// Remove removes the record.
func (r Records) Remove() error { return disk.RemoveRecord(r.Disk, op, r.path()) }

// AtStart returns the version that has to replace the process of a version that starts,
// empty if it may go on. opening is the error of opening the store, nil before that: a
// schema that is too new has been brought to To.
func (r Record) AtStart(version string, opening error) string {
	if r.Run == "" || version == r.To || !r.Decided() && !errors.Is(opening, store.ErrNewer) {
		return ""
	}
	return r.To
}
