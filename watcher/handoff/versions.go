package handoff

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
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

// Versions is the record of the versions of one subject, the agent or a component, besides the one that
// runs. Its methods are the rules for both subjects. They copy what they change.
type Versions struct {
	// OnHost are those on the host, in the order in which they were staged or replaced. The version
	// that ran last is the last one that is not staged.
	OnHost []Version `json:"on_host,omitempty"`
	// Highest is the highest full version that was ever committed on the host, or empty. The agent
	// refuses lower ones, so that whoever has stolen the server cannot move the host back to an old
	// version with known faults. It never decreases.
	Highest string `json:"highest,omitempty"`
	// Failed are those that failed on the host, oldest first.
	Failed []FailedVersion `json:"failed,omitempty"`
}

// FailedVersion is a version that failed on the host, and was at fault.
type FailedVersion struct {
	manifest.Identity
	// Archive identifies the archive of this build; see trust.Expectation. It may be empty.
	Archive string    `json:"archive,omitempty"`
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
}

// maxFailed bounds the versions that are remembered as failed. One that failed so long ago need not be.
const maxFailed = 50

// Raise raises the highest version to this one, if it is higher.
func (v *Versions) Raise(version string) {
	if order, err := manifest.CompareVersions(version, v.Highest); v.Highest == "" || err == nil && order > 0 {
		v.Highest = version
	}
}

// Commit records that a version stays and is good.
func (v *Versions) Commit(id manifest.Identity) {
	v.Raise(id.FullVersion())
	v.Failed = slices.DeleteFunc(slices.Clone(v.Failed), func(f FailedVersion) bool { return f.Identity == id })
}

// Fail records that a version has failed.
func (v *Versions) Fail(f FailedVersion) {
	same := func(o FailedVersion) bool { return o.Identity == f.Identity && o.Archive == f.Archive }
	v.Failed = append(slices.DeleteFunc(slices.Clone(v.Failed), same), f)
	v.Failed = v.Failed[max(0, len(v.Failed)-maxFailed):]
}

// FailedBefore returns the failure of a version, or nil. hash and archive are those of the build, or
// empty while they are not known: two builds of a snapshot have one name.
func (v Versions) FailedBefore(version, hash, archive string) *FailedVersion {
	for _, f := range slices.Backward(v.Failed) {
		is := f.FullVersion() == version
		switch {
		case hash != "" && f.Hash != "":
			is = is && hash == f.Hash
		case archive != "" && f.Archive != "":
			is = is && archive == f.Archive
		default:
			is = is && !f.Snapshot
		}
		if is {
			return &f
		}
	}
	return nil
}

// Kept returns the versions that ran, and Staged those that are staged.
func (v Versions) Kept() []Version {
	return slices.DeleteFunc(slices.Clone(v.OnHost), Version.Staged)
}

func (v Versions) Staged() []Version {
	return slices.DeleteFunc(slices.Clone(v.OnHost), func(v Version) bool { return !v.Staged() })
}

// Add adds a version as the newest one, in place of the one with its home.
func (v *Versions) Add(version Version) {
	v.Remove(version.Home)
	v.OnHost = append(v.OnHost, version)
}

// Remove removes the versions with these homes.
func (v *Versions) Remove(homes ...string) {
	v.OnHost = slices.DeleteFunc(slices.Clone(v.OnHost), func(o Version) bool { return slices.Contains(homes, o.Home) })
}

// Trim removes and returns what is [Surplus].
func (v *Versions) Trim(l Limits, now time.Time) []Version {
	gone := Surplus(v.OnHost, l, now)
	v.OnHost = Without(v.OnHost, gone)
	return gone
}

// Stage adds a staged version, and returns those that have to make room for it, or false if it does not
// fit even then. One that ran stays a version that ran. The home is empty before the version is fetched.
func (v *Versions) Stage(s Version, l Limits) (gone []Version, fits bool) {
	same := func(o Version) bool { return o.Home == s.Home || o.Archive != "" && o.Archive == s.Archive }
	next := Versions{OnHost: slices.Clone(v.OnHost)}
	if i := slices.IndexFunc(next.OnHost, func(o Version) bool { return same(o) && !o.Staged() }); i >= 0 {
		next.OnHost[i].Archive = s.Archive
	} else {
		next.OnHost = append(slices.DeleteFunc(next.OnHost, same), s)
		if gone = next.Trim(l, s.StagedAt); Holds(gone, s.Home) {
			return nil, false
		}
	}
	v.OnHost = next.OnHost
	return gone, true
}

// ReadVersions returns the record of the agent's versions, without those whose home is gone. One that is
// damaged counts as lost: it returns an empty one and an error, which callers log.
func ReadVersions(d disk.Disk, top string) (Versions, error) {
	v, err := recordedVersions(d, top)
	v.OnHost = slices.DeleteFunc(v.OnHost, func(v Version) bool { return gone(d, top, v.Home) })
	return v, err
}

func gone(d disk.Disk, top, home string) bool {
	_, err := d.Lstat(opVersions, layout.Path(top, home))
	return errors.Is(err, fs.ErrNotExist)
}

// DropGone removes the versions whose home is gone from the record. A damaged one stays: it
// is read as if it were not there.
func DropGone(d disk.Disk, top string) error {
	recorded, err := recordedVersions(d, top)
	n := len(recorded.OnHost)
	recorded.OnHost = slices.DeleteFunc(recorded.OnHost, func(v Version) bool { return gone(d, top, v.Home) })
	if err != nil || len(recorded.OnHost) == n {
		return nil //nolint:nilerr // see above
	}
	return WriteVersions(d, top, recorded)
}

func recordedVersions(d disk.Disk, top string) (Versions, error) {
	v, err := disk.FindRecord[Versions](d, opVersions, layout.Path(top, layout.VersionsFile), "versions", recordVersion)
	if err != nil || v == nil {
		return Versions{}, err
	}
	if v.Highest != "" {
		_, err = manifest.ParseVersion(v.Highest)
	}
	for _, o := range v.OnHost {
		err = errors.Join(err, checkHome("home", o.Home))
	}
	if err != nil {
		return Versions{}, fmt.Errorf("%s: %w", layout.VersionsFile, err)
	}
	return *v, nil
}

// WriteVersions stores the record of the agent's versions. The agent calls it while there is no marker,
// and the watcher while there is one.
func WriteVersions(d disk.Disk, top string, v Versions) error {
	return disk.WriteRecord(d, opVersions, layout.Path(top, layout.VersionsFile), "versions", recordVersion, v)
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
