package request

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/docker/go-units"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// ErrOlder is wrapped by the refusal of a version below the highest that was committed on the host.
var ErrOlder = errors.New("is older than")

// Allow returns an error if the version must not be installed: it is below its publishers' floor, or
// below the highest that was committed on the host, or failed there before. hash is that of its build, or
// empty while it is not known. kept reports whether the host may go back to a version of that name that it
// keeps.
func (r Request) Allow(v handoff.Versions, hash string, publishers trust.Expectation, kept func(handoff.Version) bool) error {
	if err := CheckFloor(r.Version, publishers.Floor); err != nil {
		return err
	}
	if err := r.checkHighest(v, publishers.Downgrade, kept); err != nil {
		return err
	}
	return r.CheckFailed(v, hash, publishers.Archive)
}

// CheckFloor refuses a version below the publishers' floor, if there is one.
func CheckFloor(version, floor string) error {
	if floor == "" {
		return nil
	}
	order, err := manifest.CompareVersions(version, floor)
	if err != nil || order >= 0 {
		return err
	}
	return fmt.Errorf("version %s is below %s, the lowest version its publishers still allow: choose a newer one", version, floor)
}

// checkHighest refuses a version below the highest that was committed on the host, unless its publishers
// let hosts go back to it, the host keeps it, or it was requested on the host with force. Old packages
// stay signed, so otherwise whoever has stolen the server could install a version with known faults.
func (r Request) checkHighest(v handoff.Versions, downgrade bool, kept func(handoff.Version) bool) error {
	if v.Highest == "" {
		return nil
	}
	order, err := manifest.CompareVersions(r.Version, v.Highest)
	if err != nil || order >= 0 || downgrade || r.Local && r.Force {
		return err
	}
	for _, k := range slices.Backward(v.Kept()) {
		if k.FullVersion() == r.Version && kept(k) {
			return nil
		}
	}
	or := fmt.Sprintf(", or run `muster-agent upgrade %s --force` on the host", r.Version)
	if r.Component.Name != "" {
		or = ""
	}
	return fmt.Errorf("version %s %w %s, which was committed on this host, and is not kept here for a rollback: let its publishers allow it with `muster package allow-downgrade %s%s`%s",
		r.Version, ErrOlder, v.Highest, r.Version, r.flag(), or)
}

// flag returns what names the component to a command.
func (r Request) flag() string {
	if r.Component.Name == "" {
		return ""
	}
	return " --component " + r.Component.Name
}

// CheckFailed refuses a version that failed on the host before, unless it is requested with force.
func (r Request) CheckFailed(v handoff.Versions, hash, archive string) error {
	f := v.FailedBefore(r.Version, hash, archive)
	if f == nil || r.Force {
		return nil
	}
	return fmt.Errorf("version %s %s, on %s: %s; request it with force to install it all the same",
		r.Version, agentapi.FailedBefore, f.At.UTC().Format(time.DateOnly), f.Reason)
}

// StageIn adds a staged version to those on the host, and returns those that have to make room for it, or
// an error if it does not fit even then.
func (r Request) StageIn(v *handoff.Versions, s handoff.Version, l handoff.Limits) ([]handoff.Version, error) {
	gone, fits := v.Stage(s, l)
	if fits {
		return gone, nil
	}
	left := max(0, l.Bytes-handoff.Bytes(v.Kept()))
	return nil, fmt.Errorf("staging it needs %s, and upgrade.keep.size leaves %s: remove a version (`muster-agent versions list%s`), or raise it",
		units.HumanSize(float64(s.Bytes)), units.HumanSize(float64(left)), r.flag())
}
