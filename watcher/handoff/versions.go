package handoff

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
)

const opVersions = "versions"

// Version is a version on the host besides the one that runs: one that ran and was good, or
// one that is staged, which has not run since it was unpacked.
type Version struct {
	Install
	// Archive is trust.Expectation.Archive of the archive that it was unpacked from; it may be
	// empty.
	Archive string `json:"archive,omitempty"`
	Bytes   int64  `json:"bytes"` // of all its files
	// StagedAt and ReplacedAt are when it was staged, and when it was replaced. One of them is
	// zero.
	StagedAt   time.Time `json:"staged_at,omitzero"`
	ReplacedAt time.Time `json:"replaced_at,omitzero"`
	// Kept is how long the version has been kept since it was replaced, as the agent has counted it,
	// and CountedAt when the agent counted last. CountedAt is zero for a version that was not counted
	// yet, and for components.
	Kept      Duration  `json:"kept,omitzero"`
	CountedAt time.Time `json:"counted_at,omitzero"`
}

// maxUncounted bounds the time between two processes of the agent that counts for Kept. A longer one may
// be a clock that was set, so it counts as nothing, and the version stays longer.
const maxUncounted = 2 * time.Hour

// Count returns the version with the time since it was counted last. elapsed is that time by this
// process's own count; nil if this process has not counted the version, and only the clock is known.
func (v Version) Count(now time.Time, elapsed *time.Duration) Version {
	if v.Staged() {
		return v
	}
	last := v.CountedAt
	if last.IsZero() {
		last = v.ReplacedAt
	}
	by := now.Round(0).Sub(last)
	if by > maxUncounted {
		by = 0
	}
	if elapsed != nil {
		by = *elapsed
	}
	v.Kept += Duration(max(0, by))
	v.CountedAt = now.Round(0).UTC()
	return v
}

// Left returns how much of a window is left for a version that ran. By the clock alone a version that
// was replaced while it was wrong would be removed as soon as it is set.
func (v Version) Left(window time.Duration, now time.Time) time.Duration {
	if v.CountedAt.IsZero() {
		return v.ReplacedAt.Add(window).Sub(now)
	}
	return window - time.Duration(v.Kept)
}

// Staged reports whether the version has not run since it was unpacked.
func (v Version) Staged() bool { return v.ReplacedAt.IsZero() }

// ReadVersions returns the versions on the host in the order in which they were staged or
// replaced. Those whose home is gone are left out. The version that ran last is the last one
// that is not staged. For a damaged record it returns none and an error, which callers log.
func ReadVersions(d disk.Disk, top string) ([]Version, error) {
	list, err := recordedVersions(d, top)
	return slices.DeleteFunc(list, func(v Version) bool { return gone(d, top, v.Home) }), err
}

func gone(d disk.Disk, top, home string) bool {
	_, err := d.Lstat(opVersions, layout.Path(top, home))
	return errors.Is(err, fs.ErrNotExist)
}

// DropGone removes the versions whose home is gone from the record. A damaged one stays: it
// is read as if it were not there.
func DropGone(d disk.Disk, top string) error {
	list, err := recordedVersions(d, top)
	if left := slices.DeleteFunc(slices.Clone(list), func(v Version) bool { return gone(d, top, v.Home) }); err == nil && len(left) < len(list) {
		return WriteVersions(d, top, left)
	}
	return nil
}

func recordedVersions(d disk.Disk, top string) ([]Version, error) {
	list, err := disk.FindRecord[[]Version](d, opVersions, layout.Path(top, layout.VersionsFile), "versions", recordVersion)
	if err != nil || list == nil {
		return nil, err
	}
	for _, v := range *list {
		if err := checkHome("home", v.Home); err != nil {
			return nil, fmt.Errorf("%s: %w", layout.VersionsFile, err)
		}
	}
	return *list, nil
}

// WriteVersions stores the versions on the host. The agent calls it while there is no marker,
// and the watcher while there is one.
func WriteVersions(d disk.Disk, top string, list []Version) error {
	return disk.WriteRecord(d, opVersions, layout.Path(top, layout.VersionsFile), "versions", recordVersion, list)
}

// Holds reports whether one of the versions has this home.
func Holds(list []Version, home string) bool {
	return slices.ContainsFunc(list, func(v Version) bool { return v.Home == home })
}

// Without returns the versions of list that are not in gone.
func Without(list, gone []Version) []Version {
	return slices.DeleteFunc(slices.Clone(list), func(v Version) bool { return Holds(gone, v.Home) })
}

// Limits bound the versions on the host besides the one that runs.
type Limits struct {
	Previous int   `json:"previous"` // versions that ran and were good
	Staged   int   `json:"staged"`
	Bytes    int64 `json:"bytes"` // of all of them; 0: no bound
	// Window is how long a version stays after it was replaced.
	Window Duration `json:"window"`
}

// DefaultLimits returns the limits of an agent with an empty configuration.
func DefaultLimits() Limits {
	return Limits{
		// More would let a stolen server choose among older versions.
		Previous: 1,
		// The next version, and a correction of it.
		Staged: 2,
		Bytes:  4e9,
		// A fault that appears once a week appears in time.
		Window: Duration(7 * 24 * time.Hour),
	}
}

// Surplus returns the versions to remove: those whose window is over, then the oldest of those
// that are too many or too large, staged ones before those that ran. The version that was
// replaced last stays until its window is over, whatever the limits say.
func Surplus(list []Version, l Limits, now time.Time) []Version {
	var gone []Version
	last := ""
	for _, v := range list {
		if !v.Staged() {
			last = v.Home
		}
	}
	stays := slices.Clone(list)
	remove := func(match func(Version) bool) bool {
		i := slices.IndexFunc(stays, match)
		if i >= 0 {
			gone, stays = append(gone, stays[i]), slices.Delete(stays, i, i+1)
		}
		return i >= 0
	}
	count := func(staged bool) (n int) {
		for _, v := range stays {
			if v.Staged() == staged {
				n++
			}
		}
		return n
	}
	older := func(v Version) bool { return !v.Staged() && v.Home != last }
	for remove(func(v Version) bool { return !v.Staged() && v.Left(time.Duration(l.Window), now) < 0 }) {
	}
	for count(true) > l.Staged && remove(Version.Staged) {
	}
	for count(false) > l.Previous && remove(older) {
	}
	for l.Bytes > 0 && Bytes(stays) > l.Bytes && (remove(Version.Staged) || remove(older)) {
	}
	return gone
}

// Bytes returns the sum of the versions' sizes.
func Bytes(list []Version) (sum int64) {
	for _, v := range list {
		sum += v.Bytes
	}
	return sum
}
