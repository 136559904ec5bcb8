package identity

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
)

const (
	pendingKind    = "enrollment"
	pendingVersion = 1
)

// Pending is an enrolment that the host has begun. The server replaces what an earlier try with the
// same id has created, so that a lost answer leaves no second agent there. The file is there from
// before the first try until the host has its identity, also if the installation in between is
// undone.
type Pending struct {
	EnrollmentID string `json:"enrollment_id"`
	// MachineID is that of the host that has begun it. A copy of the host has another one, and must
	// not replace the agent of the original.
	MachineID string `json:"machine_id,omitempty"`
	// Begun is false if the enrolment was begun by an earlier try.
	Begun bool `json:"-"`
}

// BeginEnrollment returns the enrolment that an earlier try on this machine has begun, or begins one.
func BeginEnrollment(d disk.Disk, top, machineID string) (Pending, error) {
	path := layout.Path(top, layout.EnrollmentFile)
	p, err := disk.FindRecord[Pending](d, "enrollment", path, pendingKind, pendingVersion)
	// Of a damaged file nothing is known but that it has no more use.
	if err != nil && !errors.Is(err, disk.ErrDamaged) {
		return Pending{}, err
	}
	if p != nil && p.EnrollmentID != "" && p.MachineID == machineID {
		return *p, nil
	}
	begun := Pending{EnrollmentID: strings.ToLower(rand.Text()), MachineID: machineID, Begun: true}
	if err := disk.WriteRecord(d, "enrollment", path, pendingKind, pendingVersion, begun); err != nil {
		return begun, fmt.Errorf("keep the id of the enrolment: %w", err)
	}
	return begun, nil
}

// EnrollmentPending reports whether the host has begun an enrolment and not ended it.
func EnrollmentPending(d disk.Disk, top string) bool {
	_, err := d.Lstat("enrollment", layout.Path(top, layout.EnrollmentFile))
	return !errors.Is(err, fs.ErrNotExist)
}

// EndEnrollment removes what BeginEnrollment has written.
func EndEnrollment(d disk.Disk, top string) error {
	return disk.RemoveCopies(d, "enrollment", layout.Path(top, layout.EnrollmentFile))
}
