// Package request says what is asked of a host: an upgrade or a stage of a version, of the agent
// itself or of a component. Package queue parses it once, packages upgrade and component carry it
// out; what may be installed and how it fails are the same for both.
package request

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// MaxInterrupted bounds how often what was interrupted begins again: a version may be what ends the
// agent, or the host.
const MaxInterrupted = 5

var (
	// ErrInterrupted is the failure of a request that was interrupted too often.
	ErrInterrupted = fmt.Errorf("given up after it was interrupted %d times", MaxInterrupted)
	// ErrOvertaken is the cause of a stage that an upgrade of the same subject has ended.
	ErrOvertaken = steps.Cancelled("ended by an upgrade that began")
	// ErrBusy is wrapped by what must wait for an upgrade, a stage or a watch to end.
	ErrBusy = errors.New("another upgrade is under way")
)

// Request is one upgrade or stage. The journal of an upgrade of the agent itself holds it.
type Request struct {
	// ID is the id in the queue. ActionID is the server's, empty for a local request.
	ID       string `json:"id"`
	ActionID string `json:"action_id,omitempty"`
	// Local means that the request was made on the host, by somebody who may change everything there.
	Local     bool   `json:"local,omitempty"`
	Version   string `json:"version"` // full version
	SourceURI string `json:"source_uri,omitempty"`
	// Force installs a version even if it was rolled back on this host before.
	Force bool `json:"force,omitempty"`
	// Rollback switches to a version that is on the host: kept or staged. Of the agent, it is
	// without a Version the one that ran last.
	Rollback bool `json:"rollback,omitempty"`
	// Stage ends when the version is on the host.
	Stage bool `json:"stage,omitempty"`
	// Interrupted is how many times it was interrupted and began again.
	Interrupted int `json:"interrupted,omitempty"`
	// Stop is why it must not go on; empty: it may.
	Stop string `json:"-"`
	// Component has the name of a component, and what the action says of it. Its name is empty
	// if the request is about the agent itself.
	Component agentapi.ComponentData `json:"component,omitzero"`
}

// Parse parses the data of an UPGRADE or a STAGE. With an error it returns what it could read.
func Parse(id string, local bool, data json.RawMessage) (Request, error) {
	r := Request{ID: id, Local: local}
	if !local {
		r.ActionID = id
	}
	var d agentapi.UpgradeData
	if err := json.Unmarshal(data, &d); err != nil {
		return r, fmt.Errorf("action data: %w", err)
	}
	r.Version, r.SourceURI, r.Force, r.Rollback = d.Version, d.SourceURI, d.Force, d.Rollback
	if d.Component != nil {
		r.Component = *d.Component
		r.Component.UpgradeID = cmp.Or(r.Component.UpgradeID, id)
		if err := manifest.ValidComponentName(d.Component.Name); err != nil {
			return r, fmt.Errorf("action data.component.name: %w", err)
		}
	} else if d.Rollback { // to what is on the host, which is compared by name
		return r, nil
	}
	if _, err := manifest.ParseVersion(d.Version); err != nil {
		return r, fmt.Errorf("action data.version: %w", err)
	}
	if l := r.Component.Lockstep; l != nil {
		if err := l.Until.Valid(); err != nil {
			return r, fmt.Errorf("action data.component.lockstep.until: %w", err)
		}
	}
	return r, nil
}

// String returns the version, after the name of its component.
func (r Request) String() string {
	if r.Component.Name == "" {
		return r.Version
	}
	return r.Component.Name + " " + r.Version
}
